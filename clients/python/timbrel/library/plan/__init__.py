"""The plan of a library: which instruments, which notes, in which format, and the folder that they go to."""
