"""Has gRPC survive a fork; to be imported before gRPC is, for it looks once.

Unasked, gRPC's Python half does nothing at a fork while its C half starts threads anew in the child: one in
seven children of a process that has called a server then crashes. Asked, both halves prepare, and a child may
make clients of its own. See doc/fork_support.md of gRPC.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")
