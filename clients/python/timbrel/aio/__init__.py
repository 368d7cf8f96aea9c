"""The asynchronous client: `timbrel.AsyncClient`, for programs that have an event loop of their own.

`timbrel.Client` is a facade of it. The explorer, which deals in protobuf messages itself, has a
`connection.Connection` of its own, and `player.PlayStream`s over it.
"""
