"""Spaces: what a connection keeps on a server."""

from __future__ import annotations

import dataclasses

from weir._proto import spaces_pb2


@dataclasses.dataclass(frozen=True, slots=True)
class Amounts:
    """How much of each a space may hold, or holds. As a quota, 0 is what the
    server gives."""

    tensor_bytes: int = 0
    tensors: int = 0
    contexts: int = 0
    timelines: int = 0
    works: int = 0
    sessions: int = 0

    @staticmethod
    def from_wire(amounts: spaces_pb2.SpaceAmounts) -> Amounts:
        return Amounts(amounts.tensor_bytes, amounts.tensors, amounts.contexts,
                       amounts.timelines, amounts.works, amounts.sessions)


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """A space as its opener sees it."""

    id: int
    label: str
    identity: str
    # Seconds that it lives while no call uses it.
    lease: float
    quota: Amounts
    held: Amounts

    @staticmethod
    def from_wire(space: spaces_pb2.Space) -> Space:
        return Space(space.id, space.label, space.identity,
                     space.lease_ns / 1e9, Amounts.from_wire(space.quota),
                     Amounts.from_wire(space.held))
