/** The name of a process's warnings of a disk that fails: whoever runs the process counts them. */
export const DISK_FAILURE = 'DiskFailure'
