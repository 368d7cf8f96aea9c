"""Reading a bundle: manifest, weights, sessions, codec and audio files, without torch.

Import the modules themselves (`from timbrel_bundle.bundle import Bundle`): this package imports none of them
by itself, and none of them imports onnxruntime before a session is made.
"""

import os

# Read once, as onnxruntime is imported. Since 1.29 it keeps an id of the machine in the home folder, takes
# down the sessions that are made, and sends it all to Microsoft unless it is told not to.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
