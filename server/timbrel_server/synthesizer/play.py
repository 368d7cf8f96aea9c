"""A Play stream: keys go down and up while notes sound."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.errors import (
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    ServiceError,
    UnavailableError,
    presentable,
)
from timbrel_server.rpc.handlers import parse
from timbrel_server.synthesizer.convert import bend_from_pb, move_from_pb
from timbrel_server.synthesizer.note_stream import NoteStream
from timbrel_server.synthesizer.streams import read_until_closing

MAX_LIVE_NOTES = 64
"""Notes that may live on one stream: more than ten fingers and a pedal sound at once."""

N_REMEMBERED = 4096
"""Notes that have ended whose ids are still known, so that a late note-off does no harm."""

RETRY_SECONDS = 0.5
"""One of the notes may have ended after this time, where as many live as may."""

BeginNote = Callable[[pb.NoteOn], NoteStream]
"""Sends a note to the engine. Raises ServiceErrors."""


class PlaySession:
    """One stream, and the notes that live on it. Each has a task of its own; all end with the stream."""

    def __init__(self, begin: BeginNote, write: Callable[[pb.PlayResponse], Awaitable[None]]) -> None:
        """
        Args:
            write: sends a response.
        """
        self._begin = begin
        self._write = write
        self._live: dict[int, NoteStream] = {}
        self._bend = 0.0  # of all notes
        self._ended: OrderedDict[int, None] = OrderedDict()  # the oldest first

    async def run(self, bodies: AsyncIterator[bytes], closing: asyncio.Event) -> None:
        """Does what the messages ask for, until the stream is half-closed and the last note has ended.

        Args:
            closing: once set, no more is read, keys go up, and what sounds is finished.

        Raises:
            InvalidRequestError: a message is none.
            UnauthenticatedError: the caller's token was taken back.
            UnavailableError: `closing` ended the stream.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                failure = await read_until_closing(self._act_on_all(bodies, tasks), closing)
                for note in self._live.values():
                    note.release() if isinstance(failure, UnavailableError | None) else note.cancel()
        finally:
            for note in self._live.values():  # those whose task was cancelled before it began
                note.close()
        if failure is not None:
            raise failure

    async def _act_on_all(self, bodies: AsyncIterator[bytes], tasks: asyncio.TaskGroup) -> None:
        async for body in bodies:
            await self._act(parse(pb.PlayRequest, body), tasks)

    async def _act(self, request: pb.PlayRequest, tasks: asyncio.TaskGroup) -> None:
        try:
            match request.WhichOneof("action"):
                case "note_on":
                    await self._note_on(request.id, request.note_on, tasks)
                case "note_off":
                    self._find(request.id, NoteStream.release)
                case "cancel":
                    self._find(request.id, NoteStream.cancel)
                case "bend":
                    self._act_bend(request.id, request.bend)
                case "move":
                    self._act_move(request.id, request.move)
                case _:
                    allowed = "note_on, note_off, cancel, bend or move"
                    raise InvalidRequestError([("action", f"is missing: {allowed}")])
        except ServiceError as error:
            await self._write(pb.PlayResponse(id=request.id, refusal=error.to_status()))

    async def _note_on(self, note_id: int, note_on: pb.NoteOn, tasks: asyncio.TaskGroup) -> None:
        if note_id in self._live:
            raise InvalidRequestError([("id", f"{note_id} is the id of a note that lives still")])
        self._ended.pop(note_id, None)
        try:
            if len(self._live) >= MAX_LIVE_NOTES:
                raise OverloadedError(f"{MAX_LIVE_NOTES} notes live on this stream already", RETRY_SECONDS)
            note = self._begin(note_on)
        except Exception as error:
            await self._send_end(note_id, error)
            return
        note.bend(self._bend, of_all=True)
        self._live[note_id] = note
        tasks.create_task(self._play(note_id, note))

    def _act_bend(self, note_id: int, message: pb.Bend) -> None:
        cents = bend_from_pb(message)
        if message.all:
            self._bend = cents
            for note in self._live.values():
                note.bend(cents, of_all=True)
        elif note_id in self._live and not self._live[note_id].can_bend:
            why = "codes are bent where they are decoded, and not every codec bends"
            raise InvalidRequestError([("bend", f"note {note_id} is not bent here: {why}")])
        else:
            self._find(note_id, lambda note: note.bend(cents))

    def _act_move(self, note_id: int, message: pb.Move) -> None:
        timbre = move_from_pb(message)
        if not message.all:
            self._find(note_id, lambda note: note.move(timbre))
            return
        refusals: list[ServiceError] = []
        for note in self._live.values():  # one that cannot is no reason for the others to stay
            try:
                note.move(timbre)
            except ServiceError as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    async def _play(self, note_id: int, note: NoteStream) -> None:
        """Runs as a note's task."""

        async def write(reply: pb.GenerateResponse) -> None:
            if reply.finish_reason:  # so that the id is free once the caller knows that it is
                self._forget(note_id)
            await self._write(pb.PlayResponse(id=note_id, reply=reply))

        try:
            with note:
                await note.send(write)
        except Exception as error:
            await self._send_end(note_id, error)

    async def _send_end(self, note_id: int, error: Exception) -> None:
        self._forget(note_id)
        await self._write(pb.PlayResponse(id=note_id, error=presentable(error, "Play").to_status()))

    def _find(self, note_id: int, act: Callable[[NoteStream], None]) -> None:
        if note_id in self._live:
            act(self._live[note_id])
        elif note_id not in self._ended:
            raise NotFoundError(f"there is no note {note_id} on this stream")

    def _forget(self, note_id: int) -> None:
        self._live.pop(note_id, None)
        self._ended[note_id] = None
        if len(self._ended) > N_REMEMBERED:
            self._ended.popitem(last=False)
