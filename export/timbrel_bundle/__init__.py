"""Reading a bundle: manifest, weights, sessions, codec and audio files, without torch.

Import the modules themselves (`from timbrel_bundle.bundle import Bundle`): this package imports nothing by
itself, and none of its modules imports onnxruntime before a session is made.
"""
