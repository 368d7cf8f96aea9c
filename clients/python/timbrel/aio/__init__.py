"""The asynchronous client: `timbrel.AsyncClient`, for programs that have an event loop of their own.

`timbrel.Client` is a facade of it. The explorer, which deals in protobuf messages itself, has a connection of
its own:

    connection = Connection(settings, show_progress=False)    # aio.connection
    await connection.open()
    model = await connection.fresh_model(5.0)                 # asked anew, and remembered
    await connection.transport.locate(request, 60.0)          # single calls, seconds allowed, no retries
    async with aclosing(connection.transport.generate(request, 60.0)) as replies: ...
    stream = PlayStream(connection.transport, on_end)         # aio.player: one Play call, made again
    stream.note_on(listener, request, lead_seconds)           # when its `end` is no longer None
    await connection.restart_server()                         # a private server that has died
"""
