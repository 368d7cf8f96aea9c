"""The explorer: a page in the browser, and a bridge from it to a timbrel server.

The page speaks HTTP and one WebSocket, the server gRPC; the bridge passes notes on as they sound and keeps
the server's token to itself. `timbrel.explore.run` starts it.
"""
