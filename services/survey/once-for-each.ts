/**
 * Memoizes `make`: it is called once for each object, and its result is kept as long as the object. For objects that a store or
 * a connection yields again and again, and that nobody may change.
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
