"""Looks at every node's calibration now and then, and suspends what rests on one that no longer holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slipstream.core.acceptance import Identity, change_between
from slipstream.core.calibration import Calibration, ExpectedTime, expected_time
from slipstream.core.dispatch import Dispatcher
from slipstream.core.node_state import NodeState
from slipstream.core.recheck import Learned, acceptance_departures, time_departures, traffic_departures
from slipstream.core.request import Pool
from slipstream.core.traffic import Traffic, mix_distance

__all__ = ["CalibrationSummary", "CalibrationWatch", "calibration_summaries", "change_since", "is_outdated"]


class CalibrationSummary(NamedTuple):
    """A profile in use: by how many nodes, for how many of which it no longer holds, and how their traffic is, by as
    many answers. Medians in tokens; ``mix_distance`` is the share of requests that are of other categories than those
    measured, 0..1; ``None`` = not known.
    """

    file: str
    date: str
    nodes: int
    stale: int
    answers: int
    mix_distance: float | None
    prompt_tokens: float | None
    output_tokens: float | None


class _Profile:
    """A calibration in use: the traffic of its nodes, and what it promises by draft length and range of occupancy."""

    __slots__ = ("expected", "traffic")

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.expected: dict[tuple[int, int], ExpectedTime | None] = {}


class CalibrationWatch:
    """Of one fleet. ``look`` at each of its nodes in turn; a round of all of them begins with ``begin``."""

    __slots__ = ("_dispatcher", "_profiles")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._profiles: dict[Calibration, _Profile] = {}

    def begin(self) -> list[NodeState]:
        """The nodes to look at. What is kept of profiles that are no longer in use is forgotten."""
        nodes = list(self._dispatcher.fleet.nodes())
        used = {node.spec.calibration for node in nodes}
        self._profiles = {one: profile for one, profile in self._profiles.items() if one in used}
        return nodes

    def look(self, node: NodeState, now: float, *, falls_back: bool) -> bool:
        """Bring up to date what is known of one node's calibration; whether its verdict changed.

        ``falls_back``: whether ceilings fall back to the default while a calibration does not hold. What a node that
        can not be reached would say stays as it was.
        """
        if self._dispatcher.fleet.node(node.name) is not node:
            return False  # it has left since the round began
        recheck = node.recheck
        recheck.fingerprint.wanted = node.spec.calibration is not None
        learned = self._dispatcher.evidence.book.learned_times(node.name)
        calibration, was = node.spec.calibration, recheck.stale
        if calibration is None:
            recheck.learned = [Learned(time, None) for time in learned]
            recheck.forget()
        else:
            profile = self._profile(calibration)
            k = _draft_length(node, calibration)
            recheck.traffic = profile.traffic
            recheck.learned = [
                Learned(time, _expected(profile, calibration, k, time.least, time.most)) for time in learned
            ]
            if node.healthy:
                recheck.change = change_since(calibration, node)
                recheck.departed = self._departures(node, calibration, profile.traffic)
        self._dispatcher.suspend(node.name, now, suspended=recheck.stale and falls_back)
        return recheck.stale is not was

    def _departures(self, node: NodeState, calibration: Calibration, traffic: Traffic) -> dict[str, str]:
        recheck = node.recheck
        before = recheck.departed
        found = time_departures(recheck.learned, calibration, traffic, before)
        if node.speculator is not None and node.models:
            book = self._dispatcher.evidence.book
            found |= acceptance_departures(calibration, node.speculator, node.models[0], book, before)
        return found | traffic_departures(calibration, traffic, before)

    def _profile(self, calibration: Calibration) -> _Profile:
        profile = self._profiles.get(calibration)
        if profile is None:
            profile = self._profiles[calibration] = _Profile()
        return profile


def calibration_summaries(nodes: Iterable[NodeState]) -> list[CalibrationSummary]:
    """Every profile in use, in the order of the first nodes that have it."""
    users: dict[Calibration, list[NodeState]] = {}
    for node in nodes:
        if node.spec.calibration is not None:
            users.setdefault(node.spec.calibration, []).append(node)
    return [_summary(calibration, found) for calibration, found in users.items()]


def _summary(calibration: Calibration, nodes: list[NodeState]) -> CalibrationSummary:
    traffic = nodes[0].recheck.traffic or Traffic()
    measured, shares = calibration.traffic, traffic.shares
    return CalibrationSummary(
        calibration.file,
        calibration.date,
        len(nodes),
        sum(map(is_outdated, nodes)),
        traffic.requests,
        mix_distance(shares, measured) if measured is not None and shares else None,
        traffic.prompt_tokens,
        traffic.output_tokens,
    )


def change_since(calibration: Calibration, node: NodeState) -> str:
    """What a node says to be other than its profile was measured on, in words; empty when nothing is known to be."""
    report, speculator = node.report, node.speculator
    was = now = None
    if node.pool is Pool.SPECULATIVE and speculator is not None and calibration.speculators:
        now = speculator.fingerprint
        was = now if now in calibration.speculators else " or ".join(calibration.speculators)
    same_engine = node.engine is not None and node.engine.lower() == calibration.engine.lower()
    change = change_between(
        Identity(node.engine if same_engine else calibration.engine, calibration.version, was),
        Identity(node.engine, None if report is None else report.version, now),
    )
    changes = [change] if change else []
    if node.models and calibration.model not in node.models:
        changes.append(f"model {calibration.model} became {node.models[0]}")
    hardware = node.spec.hardware
    if hardware is not None and calibration.hardware is not None and hardware != calibration.hardware:
        changes.append(f"hardware {calibration.hardware} became {hardware}")
    replicas = node.spec.replicas
    if replicas is None and report is not None:
        replicas = report.replicas
    if replicas is not None and calibration.replicas is not None and replicas != calibration.replicas:
        changes.append(f"replicas {calibration.replicas} became {replicas}")
    fingerprint, known = node.recheck.fingerprint.value, calibration.system_fingerprints
    if fingerprint is not None and known and fingerprint not in known:
        changes.append(f"system_fingerprint {' or '.join(known)} became {fingerprint}")
    return " and ".join(changes)


def is_outdated(node: NodeState) -> bool:
    """Whether a node's profile no longer holds: it was measured on something else than what the node says to be now, or
    promises something else than what was seen.
    """
    calibration = node.spec.calibration
    return calibration is not None and (bool(node.recheck.departed) or change_since(calibration, node) != "")


def _draft_length(node: NodeState, calibration: Calibration) -> int | None:
    """By which the profile's times of such a node are found: that of its speculator, or where that varies the one
    measured; 0 without one. ``None`` = several could be meant.
    """
    speculator = node.speculator
    if speculator is None:
        return 0
    if speculator.k is not None:
        return speculator.k
    measured = {time.k for time in calibration.times if time.k > 0}
    return measured.pop() if len(measured) == 1 else None


def _expected(
    profile: _Profile, calibration: Calibration, k: int | None, least: int, most: int | None
) -> ExpectedTime | None:
    if k is None:
        return None
    key = (k, least)
    if key not in profile.expected:
        profile.expected[key] = expected_time(calibration.times, k, least, most)
    return profile.expected[key]
