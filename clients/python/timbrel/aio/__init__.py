"""The asynchronous client: `timbrel.AsyncClient`, for programs that have an event loop of their own.

`timbrel.Client` is a facade of it. Parts of this package that deal in protobuf messages themselves, as the
explorer does, reach through it, too:

    client = AsyncClient(address, token, security=security)
    async with client:
        connection = connection_of(client)                        # aio.client
        model = await connection.fresh_model(5.0)                 # asked anew; the client takes it over
        await connection.transport.get_timbre_map(60.0)           # single calls, seconds allowed, no retries
        await connection.transport.locate(request, 60.0)
        async with aclosing(connection.transport.generate(request, 60.0)) as replies: ...
        stream = PlayStream(connection.transport, on_end)         # aio.player: one Play call, made again
        stream.note_on(listener, request, lead_seconds)           # when its `end` is no longer None
        await connection.move_to(address, token, security)        # the server came back somewhere else
"""
