from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.rpc import status_pb2 as _status_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class AudioFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIO_FORMAT_UNSPECIFIED: _ClassVar[AudioFormat]
    AUDIO_FORMAT_PCM16: _ClassVar[AudioFormat]
    AUDIO_FORMAT_FLOAT32: _ClassVar[AudioFormat]
    AUDIO_FORMAT_WAV: _ClassVar[AudioFormat]
    AUDIO_FORMAT_FLAC: _ClassVar[AudioFormat]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_EOS: _ClassVar[FinishReason]
    FINISH_REASON_CAP: _ClassVar[FinishReason]

AUDIO_FORMAT_UNSPECIFIED: AudioFormat
AUDIO_FORMAT_PCM16: AudioFormat
AUDIO_FORMAT_FLOAT32: AudioFormat
AUDIO_FORMAT_WAV: AudioFormat
AUDIO_FORMAT_FLAC: AudioFormat
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_EOS: FinishReason
FINISH_REASON_CAP: FinishReason

class Timbre(_message.Message):
    __slots__ = ("x", "y")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    x: float
    y: float
    def __init__(self, x: float | None = ..., y: float | None = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    def __init__(
        self, temperature: float | None = ..., top_k: int | None = ..., top_p: float | None = ...
    ) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = (
        "audio",
        "bundle",
        "bundle_hash",
        "pitch",
        "sampling",
        "seconds",
        "seed",
        "timbre",
        "velocity",
    )
    TIMBRE_FIELD_NUMBER: _ClassVar[int]
    PITCH_FIELD_NUMBER: _ClassVar[int]
    VELOCITY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    timbre: Timbre
    pitch: int
    velocity: int
    seconds: float
    seed: int
    sampling: Sampling
    bundle: str
    bundle_hash: str
    audio: AudioFormat
    def __init__(
        self,
        timbre: Timbre | _Mapping | None = ...,
        pitch: int | None = ...,
        velocity: int | None = ...,
        seconds: float | None = ...,
        seed: int | None = ...,
        sampling: Sampling | _Mapping | None = ...,
        bundle: str | None = ...,
        bundle_hash: str | None = ...,
        audio: AudioFormat | str | None = ...,
    ) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("audio", "codes", "finish_reason", "header", "held_seconds")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    HELD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    header: GenerateHeader
    codes: Codes
    finish_reason: FinishReason
    audio: bytes
    held_seconds: float
    def __init__(
        self,
        header: GenerateHeader | _Mapping | None = ...,
        codes: Codes | _Mapping | None = ...,
        finish_reason: FinishReason | str | None = ...,
        audio: bytes | None = ...,
        held_seconds: float | None = ...,
    ) -> None: ...

class GenerateHeader(_message.Message):
    __slots__ = ("bundle_hash", "codec_id", "sample_rate", "seed")
    SEED_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    CODEC_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    seed: int
    bundle_hash: str
    codec_id: str
    sample_rate: int
    def __init__(
        self,
        seed: int | None = ...,
        bundle_hash: str | None = ...,
        codec_id: str | None = ...,
        sample_rate: int | None = ...,
    ) -> None: ...

class GenerateBatchRequest(_message.Message):
    __slots__ = ("id", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: int
    note: GenerateRequest
    def __init__(self, id: int | None = ..., note: GenerateRequest | _Mapping | None = ...) -> None: ...

class GenerateBatchResponse(_message.Message):
    __slots__ = ("id", "note", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: int
    status: _status_pb2.Status
    note: GenerateResponse
    def __init__(
        self,
        id: int | None = ...,
        status: _status_pb2.Status | _Mapping | None = ...,
        note: GenerateResponse | _Mapping | None = ...,
    ) -> None: ...

class PlayRequest(_message.Message):
    __slots__ = ("cancel", "id", "note_off", "note_on")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_ON_FIELD_NUMBER: _ClassVar[int]
    NOTE_OFF_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    id: int
    note_on: NoteOn
    note_off: NoteOff
    cancel: NoteCancel
    def __init__(
        self,
        id: int | None = ...,
        note_on: NoteOn | _Mapping | None = ...,
        note_off: NoteOff | _Mapping | None = ...,
        cancel: NoteCancel | _Mapping | None = ...,
    ) -> None: ...

class NoteOn(_message.Message):
    __slots__ = ("lead_seconds", "note")
    NOTE_FIELD_NUMBER: _ClassVar[int]
    LEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    note: GenerateRequest
    lead_seconds: float
    def __init__(
        self, note: GenerateRequest | _Mapping | None = ..., lead_seconds: float | None = ...
    ) -> None: ...

class NoteOff(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteCancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlayResponse(_message.Message):
    __slots__ = ("error", "id", "refusal", "reply")
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    reply: GenerateResponse
    error: _status_pb2.Status
    refusal: _status_pb2.Status
    def __init__(
        self,
        id: int | None = ...,
        reply: GenerateResponse | _Mapping | None = ...,
        error: _status_pb2.Status | _Mapping | None = ...,
        refusal: _status_pb2.Status | _Mapping | None = ...,
    ) -> None: ...

class Codes(_message.Message):
    __slots__ = ("data", "n_codebooks", "n_frames")
    DATA_FIELD_NUMBER: _ClassVar[int]
    N_FRAMES_FIELD_NUMBER: _ClassVar[int]
    N_CODEBOOKS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    n_frames: int
    n_codebooks: int
    def __init__(
        self, data: bytes | None = ..., n_frames: int | None = ..., n_codebooks: int | None = ...
    ) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("audio", "bundle", "bundle_hash", "pitch", "sample_rate")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    PITCH_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    audio: bytes
    sample_rate: int
    pitch: float
    bundle: str
    bundle_hash: str
    def __init__(
        self,
        audio: bytes | None = ...,
        sample_rate: int | None = ...,
        pitch: float | None = ...,
        bundle: str | None = ...,
        bundle_hash: str | None = ...,
    ) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("bundle_hash", "neighbours", "timbre")
    TIMBRE_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    timbre: Timbre
    neighbours: _containers.RepeatedCompositeFieldContainer[Neighbour]
    bundle_hash: str
    def __init__(
        self,
        timbre: Timbre | _Mapping | None = ...,
        neighbours: _Iterable[Neighbour | _Mapping] | None = ...,
        bundle_hash: str | None = ...,
    ) -> None: ...

class Neighbour(_message.Message):
    __slots__ = ("distance", "point")
    POINT_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    point: TimbrePoint
    distance: float
    def __init__(self, point: TimbrePoint | _Mapping | None = ..., distance: float | None = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("bundle",)
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    def __init__(self, bundle: str | None = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("engine", "manifest")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    manifest: Manifest
    engine: EngineInfo
    def __init__(
        self, manifest: Manifest | _Mapping | None = ..., engine: EngineInfo | _Mapping | None = ...
    ) -> None: ...

class EngineInfo(_message.Message):
    __slots__ = (
        "decoder_graph",
        "default_sampling",
        "max_in_flight",
        "max_live_notes",
        "n_slots",
        "precision",
        "provider",
        "server_version",
    )
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    N_SLOTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SAMPLING_FIELD_NUMBER: _ClassVar[int]
    DECODER_GRAPH_FIELD_NUMBER: _ClassVar[int]
    MAX_LIVE_NOTES_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    provider: str
    precision: str
    n_slots: int
    server_version: str
    default_sampling: Sampling
    decoder_graph: str
    max_live_notes: int
    max_in_flight: int
    def __init__(
        self,
        provider: str | None = ...,
        precision: str | None = ...,
        n_slots: int | None = ...,
        server_version: str | None = ...,
        default_sampling: Sampling | _Mapping | None = ...,
        decoder_graph: str | None = ...,
        max_live_notes: int | None = ...,
        max_in_flight: int | None = ...,
    ) -> None: ...

class GetTimbreMapRequest(_message.Message):
    __slots__ = ("bundle",)
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    def __init__(self, bundle: str | None = ...) -> None: ...

class GetTimbreMapResponse(_message.Message):
    __slots__ = ("timbre_map",)
    TIMBRE_MAP_FIELD_NUMBER: _ClassVar[int]
    timbre_map: TimbreMap
    def __init__(self, timbre_map: TimbreMap | _Mapping | None = ...) -> None: ...

class GetFileRequest(_message.Message):
    __slots__ = ("bundle", "name", "offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    bundle: str
    def __init__(
        self, name: str | None = ..., offset: int | None = ..., bundle: str | None = ...
    ) -> None: ...

class GetFileResponse(_message.Message):
    __slots__ = ("data", "total_size")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    total_size: int
    def __init__(self, data: bytes | None = ..., total_size: int | None = ...) -> None: ...

class TimbreMap(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[TimbrePoint]
    def __init__(self, points: _Iterable[TimbrePoint | _Mapping] | None = ...) -> None: ...

class TimbrePoint(_message.Message):
    __slots__ = ("family", "instrument", "pitch_max", "pitch_min", "x", "y")
    INSTRUMENT_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    PITCH_MIN_FIELD_NUMBER: _ClassVar[int]
    PITCH_MAX_FIELD_NUMBER: _ClassVar[int]
    instrument: str
    family: str
    x: float
    y: float
    pitch_min: int
    pitch_max: int
    def __init__(
        self,
        instrument: str | None = ...,
        family: str | None = ...,
        x: float | None = ...,
        y: float | None = ...,
        pitch_min: int | None = ...,
        pitch_max: int | None = ...,
    ) -> None: ...

class Manifest(_message.Message):
    __slots__ = (
        "bundle_hash",
        "codec",
        "created",
        "files",
        "format_version",
        "git_revision",
        "model",
        "name",
        "parity",
        "ranges",
        "training",
    )
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    GIT_REVISION_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    PARITY_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    name: str
    bundle_hash: str
    created: str
    git_revision: str
    codec: CodecSpec
    model: ModelSpec
    ranges: RequestRanges
    files: _containers.RepeatedCompositeFieldContainer[BundleFile]
    training: TrainingInfo
    parity: ParityReport
    def __init__(
        self,
        format_version: int | None = ...,
        name: str | None = ...,
        bundle_hash: str | None = ...,
        created: str | None = ...,
        git_revision: str | None = ...,
        codec: CodecSpec | _Mapping | None = ...,
        model: ModelSpec | _Mapping | None = ...,
        ranges: RequestRanges | _Mapping | None = ...,
        files: _Iterable[BundleFile | _Mapping] | None = ...,
        training: TrainingInfo | _Mapping | None = ...,
        parity: ParityReport | _Mapping | None = ...,
    ) -> None: ...

class BundleFile(_message.Message):
    __slots__ = ("client_fetchable", "name", "sha256", "size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FETCHABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    size: int
    client_fetchable: bool
    def __init__(
        self,
        name: str | None = ...,
        sha256: str | None = ...,
        size: int | None = ...,
        client_fetchable: bool = ...,
    ) -> None: ...

class RequestRanges(_message.Message):
    __slots__ = ("pitch_max", "pitch_min", "seconds_max", "seconds_min", "velocity_max", "velocity_min")
    PITCH_MIN_FIELD_NUMBER: _ClassVar[int]
    PITCH_MAX_FIELD_NUMBER: _ClassVar[int]
    VELOCITY_MIN_FIELD_NUMBER: _ClassVar[int]
    VELOCITY_MAX_FIELD_NUMBER: _ClassVar[int]
    SECONDS_MIN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_MAX_FIELD_NUMBER: _ClassVar[int]
    pitch_min: int
    pitch_max: int
    velocity_min: int
    velocity_max: int
    seconds_min: float
    seconds_max: float
    def __init__(
        self,
        pitch_min: int | None = ...,
        pitch_max: int | None = ...,
        velocity_min: int | None = ...,
        velocity_max: int | None = ...,
        seconds_min: float | None = ...,
        seconds_max: float | None = ...,
    ) -> None: ...

class CodecSpec(_message.Message):
    __slots__ = (
        "codebook_size",
        "decoder_state",
        "delay_samples",
        "hop_length",
        "id",
        "n_codebooks",
        "sample_rate",
        "silence",
    )
    ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    HOP_LENGTH_FIELD_NUMBER: _ClassVar[int]
    N_CODEBOOKS_FIELD_NUMBER: _ClassVar[int]
    CODEBOOK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DELAY_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    DECODER_STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    sample_rate: int
    hop_length: int
    n_codebooks: int
    codebook_size: int
    delay_samples: int
    silence: _containers.RepeatedScalarFieldContainer[int]
    decoder_state: _containers.RepeatedCompositeFieldContainer[StateTensor]
    def __init__(
        self,
        id: str | None = ...,
        sample_rate: int | None = ...,
        hop_length: int | None = ...,
        n_codebooks: int | None = ...,
        codebook_size: int | None = ...,
        delay_samples: int | None = ...,
        silence: _Iterable[int] | None = ...,
        decoder_state: _Iterable[StateTensor | _Mapping] | None = ...,
    ) -> None: ...

class StateTensor(_message.Message):
    __slots__ = ("dtype", "name", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    def __init__(
        self, name: str | None = ..., shape: _Iterable[int] | None = ..., dtype: str | None = ...
    ) -> None: ...

class ModelSpec(_message.Message):
    __slots__ = (
        "bos_id",
        "code_offset",
        "codes_per_semitone",
        "conditioning",
        "d_feed_forward",
        "d_model",
        "eos_id",
        "head_dim",
        "max_frames",
        "max_positions",
        "n_condition_positions",
        "n_decoder_layers",
        "n_encoder_layers",
        "n_heads",
        "n_kv_heads",
        "n_parameters",
        "vocabulary_size",
    )
    D_MODEL_FIELD_NUMBER: _ClassVar[int]
    N_HEADS_FIELD_NUMBER: _ClassVar[int]
    N_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    D_FEED_FORWARD_FIELD_NUMBER: _ClassVar[int]
    N_ENCODER_LAYERS_FIELD_NUMBER: _ClassVar[int]
    N_DECODER_LAYERS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    BOS_ID_FIELD_NUMBER: _ClassVar[int]
    EOS_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAMES_FIELD_NUMBER: _ClassVar[int]
    MAX_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    N_CONDITION_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONING_FIELD_NUMBER: _ClassVar[int]
    N_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    CODES_PER_SEMITONE_FIELD_NUMBER: _ClassVar[int]
    CODE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_feed_forward: int
    n_encoder_layers: int
    n_decoder_layers: int
    vocabulary_size: int
    bos_id: int
    eos_id: int
    max_frames: int
    max_positions: int
    n_condition_positions: int
    conditioning: str
    n_parameters: int
    codes_per_semitone: int
    code_offset: int
    def __init__(
        self,
        d_model: int | None = ...,
        n_heads: int | None = ...,
        n_kv_heads: int | None = ...,
        head_dim: int | None = ...,
        d_feed_forward: int | None = ...,
        n_encoder_layers: int | None = ...,
        n_decoder_layers: int | None = ...,
        vocabulary_size: int | None = ...,
        bos_id: int | None = ...,
        eos_id: int | None = ...,
        max_frames: int | None = ...,
        max_positions: int | None = ...,
        n_condition_positions: int | None = ...,
        conditioning: str | None = ...,
        n_parameters: int | None = ...,
        codes_per_semitone: int | None = ...,
        code_offset: int | None = ...,
    ) -> None: ...

class TrainingInfo(_message.Message):
    __slots__ = ("config", "n_steps", "sources", "validation_loss")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    N_STEPS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_LOSS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[DataSource]
    n_steps: int
    validation_loss: float
    config: str
    def __init__(
        self,
        sources: _Iterable[DataSource | _Mapping] | None = ...,
        n_steps: int | None = ...,
        validation_loss: float | None = ...,
        config: str | None = ...,
    ) -> None: ...

class DataSource(_message.Message):
    __slots__ = ("licence", "n_instruments", "n_notes", "name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LICENCE_FIELD_NUMBER: _ClassVar[int]
    N_INSTRUMENTS_FIELD_NUMBER: _ClassVar[int]
    N_NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    licence: str
    n_instruments: int
    n_notes: int
    def __init__(
        self,
        name: str | None = ...,
        licence: str | None = ...,
        n_instruments: int | None = ...,
        n_notes: int | None = ...,
    ) -> None: ...

class ParityReport(_message.Message):
    __slots__ = (
        "fp16_mean_kl",
        "int8_mean_kl",
        "max_audio_difference",
        "max_logit_difference",
        "n_flips_outside_margin",
        "n_flips_within_margin",
        "n_tokens",
    )
    MAX_LOGIT_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    N_TOKENS_FIELD_NUMBER: _ClassVar[int]
    N_FLIPS_OUTSIDE_MARGIN_FIELD_NUMBER: _ClassVar[int]
    N_FLIPS_WITHIN_MARGIN_FIELD_NUMBER: _ClassVar[int]
    MAX_AUDIO_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    INT8_MEAN_KL_FIELD_NUMBER: _ClassVar[int]
    FP16_MEAN_KL_FIELD_NUMBER: _ClassVar[int]
    max_logit_difference: float
    n_tokens: int
    n_flips_outside_margin: int
    n_flips_within_margin: int
    max_audio_difference: float
    int8_mean_kl: float
    fp16_mean_kl: float
    def __init__(
        self,
        max_logit_difference: float | None = ...,
        n_tokens: int | None = ...,
        n_flips_outside_margin: int | None = ...,
        n_flips_within_margin: int | None = ...,
        max_audio_difference: float | None = ...,
        int8_mean_kl: float | None = ...,
        fp16_mean_kl: float | None = ...,
    ) -> None: ...
