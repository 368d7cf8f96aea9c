"""The asynchronous client: `timbrel.AsyncClient`, for programs that have an event loop of their own."""
