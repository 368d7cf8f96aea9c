from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

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
    def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("timbre", "pitch", "velocity", "seconds", "seed", "sampling", "bundle", "bundle_hash", "audio", "cents", "path")
    TIMBRE_FIELD_NUMBER: _ClassVar[int]
    PITCH_FIELD_NUMBER: _ClassVar[int]
    VELOCITY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    CENTS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    timbre: Timbre
    pitch: int
    velocity: int
    seconds: float
    seed: int
    sampling: Sampling
    bundle: str
    bundle_hash: str
    audio: AudioFormat
    cents: _containers.RepeatedCompositeFieldContainer[CentsPoint]
    path: _containers.RepeatedCompositeFieldContainer[TimbreAt]
    def __init__(self, timbre: _Optional[_Union[Timbre, _Mapping]] = ..., pitch: _Optional[int] = ..., velocity: _Optional[int] = ..., seconds: _Optional[float] = ..., seed: _Optional[int] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., bundle: _Optional[str] = ..., bundle_hash: _Optional[str] = ..., audio: _Optional[_Union[AudioFormat, str]] = ..., cents: _Optional[_Iterable[_Union[CentsPoint, _Mapping]]] = ..., path: _Optional[_Iterable[_Union[TimbreAt, _Mapping]]] = ...) -> None: ...

class TimbreAt(_message.Message):
    __slots__ = ("seconds", "timbre")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMBRE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    timbre: Timbre
    def __init__(self, seconds: _Optional[float] = ..., timbre: _Optional[_Union[Timbre, _Mapping]] = ...) -> None: ...

class CentsPoint(_message.Message):
    __slots__ = ("seconds", "cents")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CENTS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    cents: float
    def __init__(self, seconds: _Optional[float] = ..., cents: _Optional[float] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("header", "codes", "finish_reason", "audio", "held_seconds", "let_go", "cents")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    HELD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    CENTS_FIELD_NUMBER: _ClassVar[int]
    header: GenerateHeader
    codes: Codes
    finish_reason: FinishReason
    audio: bytes
    held_seconds: float
    let_go: bool
    cents: float
    def __init__(self, header: _Optional[_Union[GenerateHeader, _Mapping]] = ..., codes: _Optional[_Union[Codes, _Mapping]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., audio: _Optional[bytes] = ..., held_seconds: _Optional[float] = ..., let_go: bool = ..., cents: _Optional[float] = ...) -> None: ...

class GenerateHeader(_message.Message):
    __slots__ = ("seed", "bundle_hash", "codec_id", "sample_rate")
    SEED_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    CODEC_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    seed: int
    bundle_hash: str
    codec_id: str
    sample_rate: int
    def __init__(self, seed: _Optional[int] = ..., bundle_hash: _Optional[str] = ..., codec_id: _Optional[str] = ..., sample_rate: _Optional[int] = ...) -> None: ...

class GenerateBatchRequest(_message.Message):
    __slots__ = ("id", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: int
    note: GenerateRequest
    def __init__(self, id: _Optional[int] = ..., note: _Optional[_Union[GenerateRequest, _Mapping]] = ...) -> None: ...

class GenerateBatchResponse(_message.Message):
    __slots__ = ("id", "status", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: int
    status: _status_pb2.Status
    note: GenerateResponse
    def __init__(self, id: _Optional[int] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., note: _Optional[_Union[GenerateResponse, _Mapping]] = ...) -> None: ...

class PlayRequest(_message.Message):
    __slots__ = ("id", "note_on", "note_off", "cancel", "bend", "move")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_ON_FIELD_NUMBER: _ClassVar[int]
    NOTE_OFF_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    BEND_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    id: int
    note_on: NoteOn
    note_off: NoteOff
    cancel: NoteCancel
    bend: Bend
    move: Move
    def __init__(self, id: _Optional[int] = ..., note_on: _Optional[_Union[NoteOn, _Mapping]] = ..., note_off: _Optional[_Union[NoteOff, _Mapping]] = ..., cancel: _Optional[_Union[NoteCancel, _Mapping]] = ..., bend: _Optional[_Union[Bend, _Mapping]] = ..., move: _Optional[_Union[Move, _Mapping]] = ...) -> None: ...

class NoteOn(_message.Message):
    __slots__ = ("note", "lead_seconds")
    NOTE_FIELD_NUMBER: _ClassVar[int]
    LEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    note: GenerateRequest
    lead_seconds: float
    def __init__(self, note: _Optional[_Union[GenerateRequest, _Mapping]] = ..., lead_seconds: _Optional[float] = ...) -> None: ...

class NoteOff(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NoteCancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Bend(_message.Message):
    __slots__ = ("cents", "all")
    CENTS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    cents: float
    all: bool
    def __init__(self, cents: _Optional[float] = ..., all: bool = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("timbre", "all")
    TIMBRE_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    timbre: Timbre
    all: bool
    def __init__(self, timbre: _Optional[_Union[Timbre, _Mapping]] = ..., all: bool = ...) -> None: ...

class PlayResponse(_message.Message):
    __slots__ = ("id", "reply", "error", "refusal")
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    reply: GenerateResponse
    error: _status_pb2.Status
    refusal: _status_pb2.Status
    def __init__(self, id: _Optional[int] = ..., reply: _Optional[_Union[GenerateResponse, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., refusal: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class Codes(_message.Message):
    __slots__ = ("data", "n_frames", "n_codebooks")
    DATA_FIELD_NUMBER: _ClassVar[int]
    N_FRAMES_FIELD_NUMBER: _ClassVar[int]
    N_CODEBOOKS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    n_frames: int
    n_codebooks: int
    def __init__(self, data: _Optional[bytes] = ..., n_frames: _Optional[int] = ..., n_codebooks: _Optional[int] = ...) -> None: ...

class LocateRequest(_message.Message):
    __slots__ = ("audio", "sample_rate", "pitch", "bundle", "bundle_hash")
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
    def __init__(self, audio: _Optional[bytes] = ..., sample_rate: _Optional[int] = ..., pitch: _Optional[float] = ..., bundle: _Optional[str] = ..., bundle_hash: _Optional[str] = ...) -> None: ...

class LocateResponse(_message.Message):
    __slots__ = ("timbre", "neighbours", "bundle_hash", "near")
    TIMBRE_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_HASH_FIELD_NUMBER: _ClassVar[int]
    NEAR_FIELD_NUMBER: _ClassVar[int]
    timbre: Timbre
    neighbours: _containers.RepeatedCompositeFieldContainer[Neighbour]
    bundle_hash: str
    near: bool
    def __init__(self, timbre: _Optional[_Union[Timbre, _Mapping]] = ..., neighbours: _Optional[_Iterable[_Union[Neighbour, _Mapping]]] = ..., bundle_hash: _Optional[str] = ..., near: bool = ...) -> None: ...

class Neighbour(_message.Message):
    __slots__ = ("point", "distance", "share")
    POINT_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    point: TimbrePoint
    distance: float
    share: float
    def __init__(self, point: _Optional[_Union[TimbrePoint, _Mapping]] = ..., distance: _Optional[float] = ..., share: _Optional[float] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("bundle",)
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    def __init__(self, bundle: _Optional[str] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("manifest", "engine")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    manifest: Manifest
    engine: EngineInfo
    def __init__(self, manifest: _Optional[_Union[Manifest, _Mapping]] = ..., engine: _Optional[_Union[EngineInfo, _Mapping]] = ...) -> None: ...

class EngineInfo(_message.Message):
    __slots__ = ("provider", "precision", "n_slots", "server_version", "default_sampling", "decoder_graph", "max_live_notes", "max_in_flight")
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
    def __init__(self, provider: _Optional[str] = ..., precision: _Optional[str] = ..., n_slots: _Optional[int] = ..., server_version: _Optional[str] = ..., default_sampling: _Optional[_Union[Sampling, _Mapping]] = ..., decoder_graph: _Optional[str] = ..., max_live_notes: _Optional[int] = ..., max_in_flight: _Optional[int] = ...) -> None: ...

class GetTimbreMapRequest(_message.Message):
    __slots__ = ("bundle",)
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    def __init__(self, bundle: _Optional[str] = ...) -> None: ...

class GetTimbreMapResponse(_message.Message):
    __slots__ = ("timbre_map",)
    TIMBRE_MAP_FIELD_NUMBER: _ClassVar[int]
    timbre_map: TimbreMap
    def __init__(self, timbre_map: _Optional[_Union[TimbreMap, _Mapping]] = ...) -> None: ...

class GetFileRequest(_message.Message):
    __slots__ = ("name", "offset", "bundle")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    bundle: str
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., bundle: _Optional[str] = ...) -> None: ...

class GetFileResponse(_message.Message):
    __slots__ = ("data", "total_size")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    total_size: int
    def __init__(self, data: _Optional[bytes] = ..., total_size: _Optional[int] = ...) -> None: ...

class TimbreMap(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[TimbrePoint]
    def __init__(self, points: _Optional[_Iterable[_Union[TimbrePoint, _Mapping]]] = ...) -> None: ...

class TimbrePoint(_message.Message):
    __slots__ = ("instrument", "family", "x", "y", "pitch_min", "pitch_max")
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
    def __init__(self, instrument: _Optional[str] = ..., family: _Optional[str] = ..., x: _Optional[float] = ..., y: _Optional[float] = ..., pitch_min: _Optional[int] = ..., pitch_max: _Optional[int] = ...) -> None: ...

class TimbreReferences(_message.Message):
    __slots__ = ("references", "sharpness", "nearness")
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    SHARPNESS_FIELD_NUMBER: _ClassVar[int]
    NEARNESS_FIELD_NUMBER: _ClassVar[int]
    references: _containers.RepeatedCompositeFieldContainer[TimbreReference]
    sharpness: float
    nearness: float
    def __init__(self, references: _Optional[_Iterable[_Union[TimbreReference, _Mapping]]] = ..., sharpness: _Optional[float] = ..., nearness: _Optional[float] = ...) -> None: ...

class TimbreReference(_message.Message):
    __slots__ = ("instrument", "embedding")
    INSTRUMENT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    instrument: str
    embedding: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, instrument: _Optional[str] = ..., embedding: _Optional[_Iterable[float]] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("format_version", "name", "bundle_hash", "created", "git_revision", "codec", "model", "ranges", "files", "training", "parity")
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
    def __init__(self, format_version: _Optional[int] = ..., name: _Optional[str] = ..., bundle_hash: _Optional[str] = ..., created: _Optional[str] = ..., git_revision: _Optional[str] = ..., codec: _Optional[_Union[CodecSpec, _Mapping]] = ..., model: _Optional[_Union[ModelSpec, _Mapping]] = ..., ranges: _Optional[_Union[RequestRanges, _Mapping]] = ..., files: _Optional[_Iterable[_Union[BundleFile, _Mapping]]] = ..., training: _Optional[_Union[TrainingInfo, _Mapping]] = ..., parity: _Optional[_Union[ParityReport, _Mapping]] = ...) -> None: ...

class BundleFile(_message.Message):
    __slots__ = ("name", "sha256", "size", "client_fetchable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FETCHABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    size: int
    client_fetchable: bool
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., size: _Optional[int] = ..., client_fetchable: bool = ...) -> None: ...

class RequestRanges(_message.Message):
    __slots__ = ("pitch_min", "pitch_max", "velocity_min", "velocity_max", "seconds_min", "seconds_max")
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
    def __init__(self, pitch_min: _Optional[int] = ..., pitch_max: _Optional[int] = ..., velocity_min: _Optional[int] = ..., velocity_max: _Optional[int] = ..., seconds_min: _Optional[float] = ..., seconds_max: _Optional[float] = ...) -> None: ...

class CodecSpec(_message.Message):
    __slots__ = ("id", "sample_rate", "hop_length", "n_codebooks", "codebook_size", "delay_samples", "silence", "decoder_state", "bends", "lead_frames", "hold", "moves", "code_bases")
    ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    HOP_LENGTH_FIELD_NUMBER: _ClassVar[int]
    N_CODEBOOKS_FIELD_NUMBER: _ClassVar[int]
    CODEBOOK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DELAY_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    DECODER_STATE_FIELD_NUMBER: _ClassVar[int]
    BENDS_FIELD_NUMBER: _ClassVar[int]
    LEAD_FRAMES_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    CODE_BASES_FIELD_NUMBER: _ClassVar[int]
    id: str
    sample_rate: int
    hop_length: int
    n_codebooks: int
    codebook_size: int
    delay_samples: int
    silence: _containers.RepeatedScalarFieldContainer[int]
    decoder_state: _containers.RepeatedCompositeFieldContainer[StateTensor]
    bends: bool
    lead_frames: int
    hold: _containers.RepeatedScalarFieldContainer[int]
    moves: bool
    code_bases: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., sample_rate: _Optional[int] = ..., hop_length: _Optional[int] = ..., n_codebooks: _Optional[int] = ..., codebook_size: _Optional[int] = ..., delay_samples: _Optional[int] = ..., silence: _Optional[_Iterable[int]] = ..., decoder_state: _Optional[_Iterable[_Union[StateTensor, _Mapping]]] = ..., bends: bool = ..., lead_frames: _Optional[int] = ..., hold: _Optional[_Iterable[int]] = ..., moves: bool = ..., code_bases: _Optional[_Iterable[int]] = ...) -> None: ...

class StateTensor(_message.Message):
    __slots__ = ("name", "shape", "dtype")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ...) -> None: ...

class ModelSpec(_message.Message):
    __slots__ = ("d_model", "n_heads", "n_kv_heads", "head_dim", "d_feed_forward", "n_encoder_layers", "n_decoder_layers", "vocabulary_size", "bos_id", "eos_id", "max_frames", "max_positions", "n_condition_positions", "conditioning", "n_parameters", "codes_per_semitone", "code_offset", "codebook_delay", "hold_frames", "release_frames")
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
    CODEBOOK_DELAY_FIELD_NUMBER: _ClassVar[int]
    HOLD_FRAMES_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FRAMES_FIELD_NUMBER: _ClassVar[int]
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
    codebook_delay: int
    hold_frames: int
    release_frames: int
    def __init__(self, d_model: _Optional[int] = ..., n_heads: _Optional[int] = ..., n_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., d_feed_forward: _Optional[int] = ..., n_encoder_layers: _Optional[int] = ..., n_decoder_layers: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., bos_id: _Optional[int] = ..., eos_id: _Optional[int] = ..., max_frames: _Optional[int] = ..., max_positions: _Optional[int] = ..., n_condition_positions: _Optional[int] = ..., conditioning: _Optional[str] = ..., n_parameters: _Optional[int] = ..., codes_per_semitone: _Optional[int] = ..., code_offset: _Optional[int] = ..., codebook_delay: _Optional[int] = ..., hold_frames: _Optional[int] = ..., release_frames: _Optional[int] = ...) -> None: ...

class TrainingInfo(_message.Message):
    __slots__ = ("sources", "n_steps", "validation_loss", "config")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    N_STEPS_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_LOSS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[DataSource]
    n_steps: int
    validation_loss: float
    config: str
    def __init__(self, sources: _Optional[_Iterable[_Union[DataSource, _Mapping]]] = ..., n_steps: _Optional[int] = ..., validation_loss: _Optional[float] = ..., config: _Optional[str] = ...) -> None: ...

class DataSource(_message.Message):
    __slots__ = ("name", "licence", "n_instruments", "n_notes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LICENCE_FIELD_NUMBER: _ClassVar[int]
    N_INSTRUMENTS_FIELD_NUMBER: _ClassVar[int]
    N_NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    licence: str
    n_instruments: int
    n_notes: int
    def __init__(self, name: _Optional[str] = ..., licence: _Optional[str] = ..., n_instruments: _Optional[int] = ..., n_notes: _Optional[int] = ...) -> None: ...

class ParityReport(_message.Message):
    __slots__ = ("max_logit_difference", "n_tokens", "n_flips_outside_margin", "n_flips_within_margin", "max_audio_difference", "int8_mean_kl", "fp16_mean_kl")
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
    def __init__(self, max_logit_difference: _Optional[float] = ..., n_tokens: _Optional[int] = ..., n_flips_outside_margin: _Optional[int] = ..., n_flips_within_margin: _Optional[int] = ..., max_audio_difference: _Optional[float] = ..., int8_mean_kl: _Optional[float] = ..., fp16_mean_kl: _Optional[float] = ...) -> None: ...
