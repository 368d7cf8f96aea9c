"""Keys that are held for longer than the model writes, on a real server inside the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from bundle_variants import HOLD, holding
from google.rpc import code_pb2
from in_process_server import run, serving, wait_until_idle
from integration.test_play import Keyboard, generate, note
from waiting import wait_for_async

import timbrel
import timbrel.core.reply as core_reply
from timbrel.cli.info import as_text
from timbrel_bundle.bundle import Bundle
from timbrel_bundle.codec import CodecDecoder
from timbrel_bundle.manifest import held_frames, longest_note
from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.scheduler import FrameClock

WRITTEN = 12
"""Frames with the key down that the model writes."""

pytestmark = pytest.mark.usefixtures("codecs_loaded_once")

SECONDS_MAX = 60.0

Codes = npt.NDArray[np.uint16]


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return holding(tiny_bundle, tmp_path_factory.mktemp("holding") / "bundle", WRITTEN, SECONDS_MAX)


def served(bundle: Path, test: Callable[[Any, Any], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        async with serving(bundle, **options) as (app, stub, _):
            await test(stub, Bundle.open(bundle).manifest)
            await wait_until_idle(app)

    run(whole)


async def codes_of(stub: Any, asked: pb.GenerateRequest) -> Codes:
    """[frames, codebooks]"""
    replies = [reply async for reply in stub.Generate(asked)]
    n_codebooks = next(reply.codes.n_codebooks for reply in replies if reply.codes.n_codebooks)
    data = b"".join(reply.codes.data for reply in replies)
    return np.frombuffer(data, "<u2").reshape(-1, n_codebooks)


async def sustained(stub: Any, manifest: pb.Manifest, n_seeds: int = 1) -> list[int]:
    """Seeds of notes that do not end by themselves before their keys go up."""
    seeds = []
    for seed in range(200):
        asked = note(seed, seconds=SECONDS_MAX)
        if len(await codes_of(stub, asked)) > held_frames(SECONDS_MAX, manifest.codec):
            seeds.append(seed)
        if len(seeds) == n_seeds:
            return seeds
    raise AssertionError("every note of this bundle ends by itself")


def test_a_note_is_held_for_as_long_as_was_asked_for(bundle: Path) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        [seed] = await sustained(stub, manifest)
        codec, model = manifest.codec, manifest.model
        short = await codes_of(stub, note(seed, seconds=(WRITTEN / codec.sample_rate) * codec.hop_length))
        for seconds in (0.5, 3.0, SECONDS_MAX):
            codes = await codes_of(stub, note(seed, seconds=seconds))
            n_more = held_frames(seconds, codec) - model.hold_frames
            between = codes[model.hold_frames : model.hold_frames + n_more]
            rest = np.delete(codes, np.s_[model.hold_frames : model.hold_frames + n_more], axis=0)
            np.testing.assert_array_equal(
                rest, short, "what the model writes is what it writes of a short note"
            )
            assert (between[:, 2:] == HOLD).all()
            moving = {tuple(frame) for frame in codes[codec.lead_frames : model.hold_frames, :2].tolist()}
            assert {tuple(frame) for frame in between[:, :2].tolist()} <= moving

    served(bundle, test)


def test_a_key_that_was_held_and_went_up_is_the_note_of_its_hold(bundle: Path) -> None:
    """However long it was held; with a lead of seconds nobody has to wait for that."""

    async def test(stub: Any, manifest: pb.Manifest) -> None:
        seeds = await sustained(stub, manifest, 3)
        keyboard = Keyboard(stub.Play())
        for seed, lead in zip(seeds, (0.05, 1.0, 5.0), strict=True):
            await keyboard.on(seed, seed, lead=lead)
        for n_frames, seed in zip((WRITTEN - 4, 2 * WRITTEN, 4 * WRITTEN), seeds, strict=True):
            await keyboard.until(lambda n=seed, k=n_frames: keyboard.n_frames(n) > k)  # type: ignore[misc]
            await keyboard.off(seed)
        await keyboard.close()
        for seed in seeds:
            last = keyboard.last(seed)
            assert not last.let_go
            assert await generate(stub, note(seed, seconds=last.held_seconds)) == keyboard.codes(seed)
        assert keyboard.last(seeds[2]).held_seconds > 4 * WRITTEN / 50

    served(bundle, test)


def test_play_holds_a_key_beyond_what_a_request_may_ask_for(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = holding(tiny_bundle, tmp_path / "bundle", WRITTEN, seconds_max=1.0)

    async def test(stub: Any, manifest: pb.Manifest) -> None:
        keyboard = Keyboard(stub.Play())
        for seed in range(12):
            await keyboard.on(seed, seed, lead=2.0)
        await keyboard.until(lambda: any(keyboard.n_frames(seed) > 100 for seed in range(12)))
        await keyboard.close()
        assert max(keyboard.last(seed).held_seconds for seed in range(12)) > 1.5
        with pytest.raises(grpc.aio.AioRpcError, match="1 seconds are allowed"):
            await generate(stub, note(1, seconds=1.5))

    served(bundle, test)


def test_a_server_that_bounds_holds_lets_go_and_says_so(bundle: Path) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        assert manifest.ranges.seconds_max == SECONDS_MAX
        n_held = held_frames(1.0, manifest.codec)
        asked = [note(each, seconds=1.0) for each in range(12)]
        [seed] = [each.seed for each in asked if len(await codes_of(stub, each)) > n_held][:1]
        keyboard = Keyboard(stub.Play())
        await keyboard.on(1, seed, lead=30.0)
        await keyboard.until(lambda: keyboard.finished(1))
        assert (keyboard.last(1).held_seconds, keyboard.last(1).let_go) == (1.0, True)
        await keyboard.close()

    served(bundle, test, max_seconds=1.0)


def test_where_every_slot_is_held_the_next_key_gets_one(bundle: Path) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        first, second, third = await sustained(stub, manifest, 3)
        keyboard = Keyboard(stub.Play())
        for number, seed in enumerate((first, second)):
            await keyboard.on(seed, seed, lead=0.05)
            await keyboard.until(lambda n=seed: keyboard.n_frames(n) > WRITTEN)  # type: ignore[misc]
            assert number == 0 or not keyboard.finished(first)
        await keyboard.on(third, third, lead=0.05)
        await keyboard.until(lambda: keyboard.replies[third] and keyboard.finished(first))
        assert keyboard.last(first).let_go
        assert not keyboard.finished(second)
        await keyboard.close()
        assert not keyboard.last(second).let_go

    served(bundle, test, n_slots=2, caller_share=1.0)


def test_as_many_keys_sound_at_once_as_a_pedal_holds(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real time stands still here: no key that is down makes room for another."""
    monkeypatch.setattr(FrameClock, "tick", 0)

    async def test(stub: Any, manifest: pb.Manifest) -> None:
        keyboard = Keyboard(stub.Play())
        for seed in range(24):
            await keyboard.on(seed, seed, lead=0.2)
        await keyboard.until(lambda: len(keyboard.sounding) == 24)
        assert not any(map(keyboard.finished, range(24)))
        keyboard.call.cancel()

    served(tiny_bundle, test)


def test_who_holds_every_key_keeps_nobody_else_waiting(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real time stands still here: no note of ann's, who holds 64 keys down, would ever end by itself."""
    monkeypatch.setattr(FrameClock, "tick", 0)
    tokens = tmp_path / "tokens"
    tokens.write_text("ann:token-of-ann\nbob:token-of-bob\n")
    ann, bob = (((("authorization", f"Bearer token-of-{name}"),)) for name in ("ann", "bob"))

    async def test(stub: Any, manifest: pb.Manifest) -> None:
        greedy = Keyboard(stub.Play(metadata=ann))
        for seed in range(64):
            await greedy.on(seed, seed, lead=0.2)
        await greedy.until(lambda: len(greedy.sounding) == 15)
        call = stub.Generate(note(1, seconds=0.5), metadata=bob)
        assert [reply async for reply in call][-1].finish_reason, "a slot was left to him"
        assert not any(map(greedy.finished, range(64)))
        modest = Keyboard(stub.Play(metadata=bob))
        for seed in range(3):
            await modest.on(seed, seed, lead=0.2)
        await modest.until(lambda: len(modest.sounding) == 3)
        await greedy.until(lambda: greedy.finished(0) and greedy.finished(1))
        assert greedy.last(0).let_go and greedy.last(1).let_go
        assert not any(map(greedy.finished, range(2, 64))), "only as many as were wanted"
        for keyboard in (greedy, modest):
            keyboard.call.cancel()

    served(tiny_bundle, test, n_slots=16, token_file=tokens)


def has_moved(keyboard: Keyboard, note_id: int) -> bool:
    """Whether a note says another header while its key is held on."""
    codes = np.frombuffer(keyboard.codes(note_id), "<u2").reshape(-1, 3)
    return bool((codes[WRITTEN + 8 :, 2] != HOLD).any())


def test_a_chord_moves_where_slots_are_few_and_lets_no_key_go(bundle: Path) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        seeds = await sustained(stub, manifest, 5)
        keyboard = Keyboard(stub.Play())
        for seed in seeds:
            await keyboard.on(seed, seed, lead=0.05)
        await keyboard.until(lambda: all(keyboard.n_frames(seed) > WRITTEN + 8 for seed in seeds))
        for x in (-0.5, 0.5):
            move = pb.Move(timbre=pb.Timbre(x=x, y=0.3), all=True)
            await keyboard.call.write(pb.PlayRequest(move=move))
        await keyboard.until(lambda: all(has_moved(keyboard, n) or keyboard.finished(n) for n in seeds))
        assert not any(map(keyboard.finished, seeds)) and not keyboard.refusals
        await keyboard.close()
        assert not any(keyboard.last(seed).let_go for seed in seeds)

    served(bundle, test, n_slots=6, caller_share=1.0)


def test_a_chord_whose_paths_find_no_slot_goes_on_and_moves_once_there_is_one(
    bundle: Path, ticks: list[int]
) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        first, *others = await sustained(stub, manifest, 4)
        keyboard = Keyboard(stub.Play())
        path = [pb.TimbreAt(seconds=0.5, timbre=pb.Timbre(x=x, y=0.2)) for x in (0.1, -0.5)]
        seeds = (first, *others)
        for seed in seeds:
            await keyboard.on(seed, seed, lead=0.05, path=path)
        await keyboard.until(lambda: len(keyboard.sounding) == 4)
        ticks[0] = 1000  # no path begins before all four have a slot
        await keyboard.until(lambda: all(keyboard.n_frames(n) > 60 or keyboard.finished(n) for n in seeds))
        assert not any(has_moved(keyboard, seed) or keyboard.finished(seed) for seed in seeds)
        await keyboard.off(first)
        await keyboard.until(lambda: all(has_moved(keyboard, seed) for seed in others))
        assert not any(map(keyboard.finished, others))
        await keyboard.close()
        assert not any(keyboard.last(seed).let_go for seed in seeds)

    served(bundle, test, n_slots=4, caller_share=1.0)


def test_sound_decoded_here_is_that_of_the_codes(bundle: Path) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        [seed] = await sustained(stub, manifest)
        codes = await codes_of(stub, note(seed, seconds=8.0))
        replies = stub.Generate(note(seed, seconds=8.0, audio=pb.AUDIO_FORMAT_FLOAT32))
        audio = np.frombuffer(b"".join([reply.audio async for reply in replies]), "<f4")
        expected = CodecDecoder(Bundle.open(bundle)).decode(codes, seed)
        assert len(codes) > 256, "more than is decoded in one run"
        np.testing.assert_allclose(audio, expected, atol=1e-4)

    served(bundle, test)


def test_a_file_of_a_key_played_live_is_of_what_the_model_writes(bundle: Path) -> None:
    """It is made in one piece: without `seconds` it cannot wait for a key that may never go up."""

    async def test(stub: Any, manifest: pb.Manifest) -> None:
        [seed] = await sustained(stub, manifest)
        keyboard = Keyboard(stub.Play())
        await keyboard.on(1, seed, audio=pb.AUDIO_FORMAT_WAV)
        await keyboard.until(lambda: keyboard.finished(1))
        last = keyboard.last(1)
        assert last.let_go and held_frames(last.held_seconds, manifest.codec) == manifest.model.hold_frames
        await keyboard.close()

    served(bundle, test)


def test_what_is_too_large_for_one_piece_is_refused_in_one_line(bundle: Path) -> None:
    async def test(stub: Any, manifest: pb.Manifest) -> None:
        asked = note(1, seconds=SECONDS_MAX, audio=pb.AUDIO_FORMAT_WAV)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await generate(stub, asked)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "in one piece" in str(refused.value.details()) and "\n" not in str(refused.value.details())
        [item] = [
            each async for each in stub.GenerateBatch(iter([pb.GenerateBatchRequest(id=1, note=asked)]))
        ]
        assert item.status.code == code_pb2.INVALID_ARGUMENT

    served(bundle, test, max_audio_bytes=1 << 20)


def test_the_client_takes_long_notes_whole_and_streamed_and_played(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))

    def play(address: str) -> None:
        with timbrel.Client(address) as client:
            model = client.model()
            assert model.holds_on and model.seconds_range[1] == SECONDS_MAX <= model.max_seconds
            assert "live without end unless the server bounds it" in as_text(
                model, ()
            )  # which it cannot know
            rate = model.sample_rate
            notes = (client.generate("Violin", 60, seconds=20.0, seed=seed) for seed in range(100))
            whole = next(each for each in notes if each.duration > 20.0)
            streamed = np.concatenate(list(client.stream("Violin", 60, seconds=20.0, seed=whole.seed)))
            np.testing.assert_allclose(streamed, whole.audio, atol=1e-4)
            with client.play(lead_seconds=5.0) as player:
                held = player.note_on("Violin", 60, seed=whole.seed)
                n_samples = 0
                for audio in held:
                    n_samples += len(audio)
                    if n_samples > 2 * rate:
                        held.off()
            assert held.held_seconds is not None and held.held_seconds > 2.0 and held.let_go is False
            again = client.generate("Violin", 60, seconds=held.held_seconds, seed=whole.seed)
            n_left_out = len(again.audio) - n_samples  # what was written ahead and nobody had read
            assert 0 <= n_left_out <= held.held_seconds * rate - 2 * rate
            with pytest.raises(timbrel.InvalidRequestError, match="60 seconds are allowed"):
                client.generate("Violin", 60, seconds=61.0)

    async def test() -> None:
        async with serving(bundle) as (app, _, _channel):
            await asyncio.to_thread(play, app.address)

    run(test)


def test_a_note_that_nobody_reads_is_let_go_and_the_server_is_not_blamed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMBREL_CACHE", str(tmp_path / "cache"))
    longest = longest_note(Bundle.open(bundle).manifest)
    monkeypatch.setattr(core_reply, "REPLY_BYTES", 1 << 16)
    monkeypatch.setattr(core_reply, "SPARE_BYTES", (30 - longest) << 16)  # room for some thirty replies

    async def test() -> None:
        async with (
            serving(bundle) as (app, _, _channel),
            timbrel.AsyncClient(app.address) as client,
            client.play() as player,
        ):
            notes = [await client.generate("Violin", seconds=5.0, seed=seed) for seed in range(8)]
            held = await player.note_on("Violin", seed=next(n.seed for n in notes if n.duration > 5.0))
            await wait_for_async(lambda: held._replies.qsize() > 20, "replies that nobody reads")
            await wait_until_idle(app)  # though the key is down
            with pytest.raises(timbrel.CancelledError, match=r"came unread.*: read a note as it is played"):
                async for _ in held:
                    pass

    run(test)
