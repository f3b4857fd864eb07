# SPDX-License-Identifier: Apache-2.0
"""Counts and times of one interval, in vLLM's own shape, and the Prometheus series made of them.

vLLM's external-hit counters count what was promised; these count what was really loaded. Label values
are the words below and nothing else, so that the number of series is fixed.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .base import KVConnectorPromMetrics, KVConnectorStats

# name: (help, reasons)
COUNTERS: Dict[str, Any] = {
    "hit_tokens": ("Tokens whose KV was really loaded from Maru", ()),
    "queried_tokens": ("Tokens of full chunks that Maru was asked for", ()),
    "misses": (
        "Requests that found nothing, once per request and reason",
        ("absent", "bypass", "prompt_logprobs", "unbound", "disconnected", "deadline", "failed_load"),
    ),
    "loaded_chunks": ("Chunks loaded", ()),
    "loaded_bytes": ("Bytes loaded", ()),
    "load_failures": (
        "Chunks that were promised and not loaded",
        ("gone", "disconnected", "damaged", "error"),
    ),
    "stored_chunks": ("Chunks stored", ()),
    "stored_bytes": ("Bytes stored", ()),
    "skipped_chunks": (
        "Chunks that were computed and not stored",
        ("full", "present", "pending", "disconnected", "tainted", "error"),
    ),
    "breaker_opened": ("Times that marud stopped answering and was left alone", ()),
}
TIMES = {
    "probe_seconds": "One probe, as the scheduler waits for it",
    "load_seconds": "The loads of one step, acquire to last byte",
    "store_seconds": "The stores of one step, until they are on their way to marud",
}
BUCKETS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0]
MAX_TIMES = 256
"""Of each kind in one interval; more are counted and not kept."""


class MaruStats(KVConnectorStats):
    """``data`` is {"counts": {name or name:reason: n}, "times": {name: [s]}, "disconnected": 0 or 1}."""

    def __init__(self, data: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(data=data or {})
        if not self.data:
            self.reset()

    def reset(self) -> None:
        self.data = {"counts": {}, "times": {}, "disconnected": 0}

    def add(self, name: str, amount: int = 1, reason: str = "") -> None:
        if amount:
            key = f"{name}:{reason}" if reason else name
            counts = self.data["counts"]
            counts[key] = counts.get(key, 0) + amount

    def time(self, name: str, seconds: float) -> None:
        values = self.data["times"].setdefault(name, [])
        if len(values) < MAX_TIMES:
            values.append(seconds)

    def count(self, name: str, reason: str = "") -> int:
        return self.data["counts"].get(f"{name}:{reason}" if reason else name, 0)

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, amount in other.data.get("counts", {}).items():
            self.add(name, amount)
        for name, values in other.data.get("times", {}).items():
            for value in values:
                self.time(name, value)
        self.data["disconnected"] = max(self.data["disconnected"], other.data.get("disconnected", 0))
        return self

    def is_empty(self) -> bool:
        return not (self.data["counts"] or self.data["times"] or self.data["disconnected"])

    def reduce(self) -> Dict[str, Any]:
        """For vLLM's log line."""
        shown: Dict[str, Any] = {
            f"Maru {name.replace('_', ' ').replace(':', ' ')}": amount
            for name, amount in sorted(self.data["counts"].items())
        }
        for name, values in sorted(self.data["times"].items()):
            what = name.rsplit("_", 1)[0]
            ordered = sorted(values)
            shown[f"Maru {what} p50 (ms)"] = round(_at(ordered, 0.50) * 1e3, 3)
            shown[f"Maru {what} p95 (ms)"] = round(_at(ordered, 0.95) * 1e3, 3)
        if self.data["disconnected"]:
            shown["Maru"] = "disconnected"
        return shown

    def take(self) -> Optional[MaruStats]:
        """What has gathered since the last time, or None."""
        if self.is_empty():
            return None
        taken = MaruStats(self.data)
        self.reset()
        return taken


def _at(ordered: List[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class MaruPromMetrics(KVConnectorPromMetrics):
    """Series named ``vllm:maru_...``, made once per engine with every reason at zero."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Dict[Any, Any],
        labelnames: List[str],
        per_engine_labelvalues: Dict[int, List[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: Dict[int, Dict[str, Any]] = {}
        self._times: Dict[int, Dict[str, Any]] = {}
        self._disconnected: Dict[int, Any] = {}
        counters = {
            name: self._counter_cls(
                name=f"vllm:maru_{name}",
                documentation=text + ".",
                labelnames=labelnames + (["reason"] if reasons else []),
            )
            for name, (text, reasons) in COUNTERS.items()
        }
        times = {
            name: self._histogram_cls(
                name=f"vllm:maru_{name}",
                documentation=text + ".",
                buckets=BUCKETS,
                labelnames=labelnames,
            )
            for name, text in TIMES.items()
        }
        disconnected = self._gauge_cls(
            name="vllm:maru_disconnected",
            documentation="1: there is no session with marud now.",
            labelnames=labelnames,
        )
        for engine, values in per_engine_labelvalues.items():
            self._counters[engine] = {
                f"{name}:{reason}" if reason else name: counters[name].labels(
                    *values, *([reason] if reason else [])
                )
                for name, (_, reasons) in COUNTERS.items()
                for reason in reasons or ("",)
            }
            self._times[engine] = {name: times[name].labels(*values) for name in TIMES}
            self._disconnected[engine] = disconnected.labels(*values)

    def observe(self, transfer_stats_data: Dict[str, Any], engine_idx: int = 0) -> None:
        counters = self._counters.get(engine_idx)
        if counters is None:
            return
        for name, amount in transfer_stats_data.get("counts", {}).items():
            if name in counters:
                counters[name].inc(amount)
        for name, values in transfer_stats_data.get("times", {}).items():
            for value in values:
                self._times[engine_idx][name].observe(value)
        self._disconnected[engine_idx].set(transfer_stats_data.get("disconnected", 0))
