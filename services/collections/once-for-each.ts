/**
 * `make`, called once for each object that it is given; what it made is kept as long as the object. For what comes out of a
 * store or over a connection as the same object again, which nobody may change.
 */
export function onceForEach<Source extends object, Made>(make: (source: Source) => Made): (source: Source) => Made {
  const made = new WeakMap<Source, Made>()
  return (source) => {
    const known = made.get(source)
    if (known !== undefined) return known
    const value = make(source)
    made.set(source, value)
    return value
  }
}
