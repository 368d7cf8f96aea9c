"""EnCodec through its own package: Meta's weights, or one of any size that is trained here.

After Défossez et al., "High Fidelity Neural Audio Compression", 2022.
"""

from timbrel_training.codec.encodec.codec import EncodecCodec, EncodecSizes, build_codec
from timbrel_training.codec.encodec.train import EncodecConfig, make_codec
from timbrel_training.codec.interface import CodecDesign

__all__ = ["DESIGN", "EncodecCodec", "EncodecConfig", "EncodecSizes"]

DESIGN = CodecDesign(EncodecCodec.id, EncodecConfig, make_codec, build_codec)
