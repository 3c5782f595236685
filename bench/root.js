import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** Folder of the repository. */
export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..')

/** A compiled module of the product, or of another checkout of it. `file` is its path in dist. */
export function importOfDist(file, folder = root) {
  return import(pathToFileURL(path.join(folder, 'dist', file)))
}
