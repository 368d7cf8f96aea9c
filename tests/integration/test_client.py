"""The client and the server together, on the tiny bundle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cut_proxy import CutProxy
from server_process import ServerProcess

import timbrel
from timbrel.aio import transport
from timbrel.aio.transport import Transport
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")


@pytest.fixture
def client(server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[timbrel.Client]:
    """A client with a cache of its own."""
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    with timbrel.Client(server_address) as opened:
        yield opened


def test_a_note_sounds_as_its_codes_decode(client: timbrel.Client, tiny_bundle: Path) -> None:
    note = client.generate((0.2, -0.4), pitch=50, velocity=80, seconds=0.5, seed=1)
    bundle = Bundle.open(tiny_bundle)
    codec = bundle.manifest.codec
    assert note.codes.dtype == np.uint16 and note.codes.shape[1] == codec.n_codebooks
    assert note.audio.dtype == np.float32 and len(note.audio) == (len(note.codes) - 4) * codec.hop_length
    assert note.sample_rate == codec.sample_rate
    np.testing.assert_array_equal(note.audio, CodecDecoder(bundle).decode(note.codes, seed=1))
    np.testing.assert_array_equal(note.audio, client.decode(note.codes, note.seed))
    assert np.abs(note.audio - client.decode(note.codes, seed=2)).max() > 1e-3


def test_a_bend_changes_the_sound_and_not_the_codes(client: timbrel.Client) -> None:
    curve = [(0.0, 0.0), (0.3, 200.0)]
    plain, bent = (client.generate("Violin", seconds=0.5, seed=1, cents=cents) for cents in (0.0, curve))
    np.testing.assert_array_equal(plain.codes, bent.codes)
    assert bent.cents == tuple(curve) and "cents=((0.0, 0.0), " in repr(bent) and "cents" not in repr(plain)
    assert np.abs(plain.audio - bent.audio).max() > 0.05
    np.testing.assert_array_equal(bent.audio, client.decode(bent.codes, bent.seed, curve))
    np.testing.assert_allclose(
        client.decode(bent.codes, 1, curve, level_db=-6.0), bent.audio * 10 ** (-6 / 20), atol=1e-4
    )
    streamed = np.concatenate(list(client.stream("Violin", seconds=0.5, seed=1, cents=curve)))
    np.testing.assert_allclose(streamed, bent.audio, atol=1e-4)
    many = [timbrel.NoteRequest("Violin", seconds=0.5, seed=1, cents=cents) for cents in (-50, curve)]
    first, second = client.generate_many(many)
    assert first.cents == -50 and np.array_equal(second.audio, bent.audio)


def test_a_curve_that_its_owner_changes_later_changes_no_note(client: timbrel.Client) -> None:
    for curve in (np.array([[0.0, 0.0], [0.3, 200.0]]), [[0.0, 0.0], [0.3, 200.0]]):
        made = client.generate("Violin", seconds=0.5, seed=1, cents=curve)  # type: ignore[arg-type]
        request = timbrel.NoteRequest("Violin", seconds=0.5, seed=1, cents=curve)  # type: ignore[arg-type]
        curve[1][1] = -200.0
        (of_many,) = client.generate_many([request])
        for note in (made, of_many):
            assert note.cents == ((0.0, 0.0), (0.3, 200.0)) and "np." not in repr(note)
            np.testing.assert_array_equal(
                note.audio, client.decode(note.codes, 1, [(0.0, 0.0), (0.3, 200.0)])
            )


@pytest.mark.parametrize("cents", [2401, -2401.0, float("nan"), "up", [(0.0,)], [(0.5, 0.0), (0.0, 0.0)]])
def test_a_bend_that_cannot_be_is_refused_before_anything_is_sent(client: timbrel.Client, cents: Any) -> None:
    with pytest.raises(timbrel.InvalidRequestError, match="cents: "):
        client.generate("Violin", cents=cents)
    with client.play() as player, pytest.raises(timbrel.InvalidRequestError, match="cents: "):
        player.bend(cents if isinstance(cents, float | int) else "up")


def test_no_bend_at_all_is_none(client: timbrel.Client) -> None:
    straight: Any = {"timbre": "Violin", "seconds": 0.1, "seed": 1, "cents": None}
    note = client.generate(**straight)
    (of_many,) = client.generate_many([timbrel.NoteRequest(**straight)])
    streamed = np.concatenate(list(client.stream(**straight)))
    assert note.cents == of_many.cents == 0.0 and np.array_equal(note.audio, of_many.audio)
    np.testing.assert_allclose(streamed, note.audio, atol=1e-4)


@pytest.mark.parametrize("cents", [None, float("nan"), [(0.5, 0.0), (0.0, 0.0)]])
def test_codes_are_not_decoded_with_a_bend_that_cannot_be(client: timbrel.Client, cents: Any) -> None:
    codes = client.generate("Violin", seconds=0.1).codes
    with pytest.raises(timbrel.InvalidRequestError, match="cents: "):
        client.decode(codes, cents=cents)


def test_an_event_loop_bends_alike(server_address: str, client: timbrel.Client) -> None:
    async def main() -> tuple[Any, Any]:
        async with timbrel.AsyncClient(server_address) as alike, alike.play() as player:
            player.bend(200.0)
            note = await player.note_on("Violin", 60, seconds=0.5, seed=1, cents=-500)
            note.bend(100.0)
            played = np.concatenate([chunk async for chunk in note])
            return played, (await alike.generate("Violin", 60, seconds=0.5, seed=1, cents=-200)).audio

    played, bent = asyncio.run(main())
    np.testing.assert_allclose(played, bent, atol=1e-4)
    np.testing.assert_array_equal(
        bent, client.generate("Violin", 60, seconds=0.5, seed=1, cents=[(0, -200)]).audio
    )


def test_a_played_note_is_bent_from_the_next_frame_on(client: timbrel.Client) -> None:
    with client.play() as player:
        plain = np.concatenate(list(player.note_on("Violin", 60, seconds=0.5, seed=1)))
        note = player.note_on("Violin", 60, seconds=0.5, seed=1)
        parts = [next(note) for _ in range(8)]
        player.bend(-100.0)
        note.bend(300.0)
        parts += list(note)
        player.bend(0.0)
        again = np.concatenate(list(player.note_on("Violin", 60, seconds=0.5, seed=1)))
    n_before = sum(map(len, parts[:8]))
    bent = np.concatenate(parts)
    assert len(bent) == len(plain)
    np.testing.assert_allclose(bent[:n_before], plain[:n_before], atol=1e-4)
    hop = len(plain) // round(len(plain) / 1280)
    assert np.abs(bent - plain)[n_before : n_before + 2 * hop].max() > 0.01
    np.testing.assert_allclose(again, plain, atol=1e-4)


def test_one_seed_gives_one_note(client: timbrel.Client) -> None:
    def codes(seed: int | None) -> list[list[int]]:
        note = client.generate("Violin", seconds=0.5, seed=seed, temperature=1.0)
        return [list(map(int, frame)) for frame in note.codes]

    assert codes(1) == codes(1)
    assert codes(1) != codes(2)
    drawn = client.generate("Violin", seconds=0.5, temperature=1.0)
    np.testing.assert_array_equal(
        client.generate("Violin", seconds=0.5, temperature=1.0, seed=drawn.seed).codes, drawn.codes
    )


def test_sixteen_at_once_are_each_as_alone(client: timbrel.Client) -> None:
    def render(number: int) -> timbrel.Note:
        timbre = (0.9 * np.cos(number), 0.9 * np.sin(number))
        return client.generate(timbre, pitch=40 + 3 * number, seconds=0.1 + 0.1 * number, seed=number)

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(render, range(16)))
    for number, note in enumerate(together):
        np.testing.assert_array_equal(note.codes, render(number).codes)


def test_a_note_at_the_cap_is_truncated(client: timbrel.Client, tiny_bundle: Path) -> None:
    max_frames = Bundle.open(tiny_bundle).manifest.model.max_frames
    notes = [client.generate("Flute", seconds=2.4, seed=seed, temperature=1.0) for seed in range(4)]
    for note in notes:
        assert len(note.codes) <= max_frames
        assert not note.truncated or len(note.codes) == max_frames


def test_the_cache_holds_the_codec_and_never_the_model(client: timbrel.Client, tmp_path: Path) -> None:
    client.generate("Violin", seconds=0.2, seed=1)
    (folder,) = (tmp_path / "cache" / "bundles").iterdir()
    assert folder.name == client.model().bundle_hash
    names = {path.name for path in folder.iterdir()}
    assert names == {"manifest.json", "codec_decoder.onnx", "codec.safetensors"}


def test_a_note_can_be_decoded_after_its_client_is_closed(server_address: str) -> None:
    with timbrel.Client(server_address) as client:
        note = client.generate("Violin", seconds=0.2, seed=1)
    assert len(note.audio) == note.duration * note.sample_rate


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_a_server_of_this_machine_is_asked_past_a_proxy(
    variable: str, server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there
    with timbrel.Client(server_address, timeout=20.0) as client:
        assert client.model().name


def test_a_connection_that_the_network_has_forgotten_is_replaced(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notice_within(ping_timeout_ms: int) -> None:
        hurried = {"grpc.keepalive_time_ms": 500, "grpc.http2.ping_timeout_ms": ping_timeout_ms}
        options = [(name, hurried.get(name, value)) for name, value in usual]
        monkeypatch.setattr(transport, "CHANNEL_OPTIONS", options)

    usual = transport.CHANNEL_OPTIONS
    notice_within(500)
    with CutProxy(server_address) as proxy, timbrel.Client(proxy.address, timeout=20.0) as client:
        client.generate("Violin", seconds=0.2)
        proxy.forget()
        assert client.generate("Violin", seconds=0.2, seed=1).seed == 1
    notice_within(2500)  # until the note sounds, a busy machine is not to be taken for one that has forgotten
    with CutProxy(server_address) as proxy, timbrel.Client(proxy.address, timeout=20.0) as client:
        with client.play() as player:
            held = player.note_on("Violin")
            next(held)
            proxy.forget()
            with pytest.raises(timbrel.UnavailableError, match="ping timeout"):
                list(held)
        assert client.generate("Violin", seconds=0.2, seed=2).seed == 2


def test_the_server_describes_itself(client: timbrel.Client, tiny_bundle: Path) -> None:
    model = client.model()
    assert model.bundle_hash == Bundle.open(tiny_bundle).manifest.bundle_hash
    assert model.provider == "CPUExecutionProvider"
    assert model.n_slots >= 1 and 0.0 <= model.default_sampling.temperature <= 2.0
    assert "Violin" in client.instruments()
    assert all(np.hypot(*instrument.timbre) <= 1.0 for instrument in client.timbre_map())


async def answers(address: str, ask: Callable[[Transport], AsyncIterator[Any]]) -> list[Any]:
    """What a bare transport gets, without what the client checks."""
    transport = Transport(address, None)
    try:
        return [reply async for reply in ask(transport)]
    finally:
        await transport.close()


def test_the_server_refuses_what_the_client_would_have(server_address: str) -> None:
    request = pb.GenerateRequest(timbre=pb.Timbre(x=0.9, y=0.9), pitch=12, velocity=0, seconds=-1.0)
    with pytest.raises(timbrel.InvalidRequestError) as caught:
        asyncio.run(answers(server_address, lambda transport: transport.generate(request, 10.0)))
    assert {field.field for field in caught.value.fields} == {"timbre", "pitch", "velocity", "seconds"}


@pytest.mark.parametrize(
    ("token", "fault"),
    [("another-token", timbrel.AuthenticationError), ("token-of-ann", timbrel.OverloadedError)],
)
def test_who_writes_on_is_told_why_a_stream_is_refused(
    start_server: Callable[..., ServerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    fault: type[timbrel.TimbrelError],
) -> None:
    """gRPC loses the status of most streams that end while they are being written to."""
    monkeypatch.setattr(transport, "ASKING_SECONDS", 60.0)  # forty ask at once
    tokens = tmp_path / "tokens"
    tokens.write_text("ann:token-of-ann\n")
    server = start_server("--token-file", str(tokens), "--max-item-streams", "4")
    told: Counter[str] = Counter()

    async def messages() -> AsyncIterator[pb.PlayRequest]:
        for number in range(50):
            yield pb.PlayRequest(id=number, note_off=pb.NoteOff())
        await asyncio.sleep(60.0)

    async def be_refused(transport: Transport) -> None:
        try:
            async for _ in transport.play(messages()):
                pass
        except timbrel.TimbrelError as error:
            told[type(error).__name__] += 1

    async def scene() -> None:
        ann, other = Transport(server.address, "token-of-ann"), Transport(server.address, token)
        replies = aiter(ann.play(messages()))  # all the streams that one caller may have
        await anext(replies)
        await asyncio.gather(*(be_refused(other) for _ in range(40)))
        await ann.close()
        await other.close()

    asyncio.run(scene())
    assert told == {fault.__name__: 40}


def test_a_bundle_that_is_not_the_servers_is_a_mismatch(server_address: str) -> None:
    request = pb.GenerateRequest(timbre=pb.Timbre(x=0.1, y=0.1), pitch=60, bundle_hash="0" * 64)
    with pytest.raises(timbrel.BundleMismatchError, match=r"is being served; .* a new one takes"):
        asyncio.run(answers(server_address, lambda transport: transport.generate(request, 10.0)))


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", "../secret", ""])
def test_the_model_cannot_be_fetched(server_address: str, name: str) -> None:
    with pytest.raises((timbrel.NotFoundError, timbrel.InvalidRequestError)):
        asyncio.run(answers(server_address, lambda transport: transport.get_file(name, 0, 10.0)))
