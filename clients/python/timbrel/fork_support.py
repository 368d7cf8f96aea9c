"""Has gRPC leave forks alone; to be imported before gRPC is, for it looks once.

Unasked, gRPC's C half restarts its threads in every forked child, and one in seven children of a process
that has called a server crashes, whatever it was forked for. Asked to support forks
(GRPC_ENABLE_FORK_SUPPORT=1) it ends every child that is forked while an asynchronous client is open, programs
started with a `preexec_fn` among them. Told not to, it harms none of them; only, no child can call a server
itself: `fork_guard` says so.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
