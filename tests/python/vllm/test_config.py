# SPDX-License-Identifier: Apache-2.0
"""Every configuration that is refused, with one sentence that names the setting and what is allowed."""

import contextlib
import io
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from types import SimpleNamespace

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import stubs  # noqa: F401
from engine import Tensor, vllm_config
from maru_vllm import check
from maru_vllm.config import (
    IGNORED,
    SETTINGS,
    ConfigError,
    Settings,
    default_socket,
    effective_engine_id,
)
from maru_vllm.engine import engine_problems
from maru_vllm.layout import read_layout
from maru_vllm.namespace import namespace_text
from maru_vllm.sizes import parse_size

PACKAGE = pathlib.Path(check.__file__).resolve().parents[1]
GOOD = {
    "maru_cpu_pool_size": "8G",
    "maru_engine_id": "inference-a",
    "maru_cache_namespace": "model@1",
}

# A setting, a value, and what the sentence must say.
REFUSED = [
    ("maru_cpu_pool_size", None, ["maru_cpu_pool_size is missing", "'cpu'", "8G"]),
    ("maru_engine_id", None, ["maru_engine_id is missing", "'cpu'"]),
    ("maru_cache_namespace", None, ["maru_cache_namespace is missing", "immutable weights"]),
    ("maru_cache_namespace", "", ["maru_cache_namespace", "not empty"]),
    ("maru_cache_namespace", 7, ["maru_cache_namespace", "text"]),
    ("maru_cache_namespace", "x" * 5000, ["maru_cache_namespace", "4096"]),
    ("maru_engine_id", "x" * 300, ["maru_engine_id", "248"]),
    ("maru_engine_id", "a\0b", ["maru_engine_id", "control characters"]),
    ("maru_cache_namespace", "a\n", ["maru_cache_namespace", "control characters"]),
    ("maru_cache_namespace", "a\ud800", ["maru_cache_namespace", "halves of a pair"]),
    ("maru_storage_backend", "mixed", ["maru_storage_backend", "'cpu'", "mixed_storage_v1"]),
    ("maru_storage_backend", "cxl", ["maru_storage_backend", "'cpu'"]),
    ("maru_storage_backend", "disk", ["maru_storage_backend", "'disk'", "'cpu'"]),
    ("maru_cxl_pool_size", "32G", ["maru_cxl_pool_size", "mixed"]),
    ("maru_write_order", ["cxl", "cpu"], ["maru_write_order", '["cpu"]']),
    ("maru_read_order", "cpu", ["maru_read_order", '["cpu"]']),
    ("maru_read_order", [], ["maru_read_order", '["cpu"]']),
    ("maru_kv_chunk_tokens", 0, ["maru_kv_chunk_tokens", "0", "from 1"]),
    ("maru_kv_chunk_tokens", "256", ["maru_kv_chunk_tokens", "whole number"]),
    ("maru_kv_chunk_tokens", True, ["maru_kv_chunk_tokens", "whole number"]),
    ("maru_cpu_scope", "node", ["maru_cpu_scope", "'host' or 'worker'"]),
    ("maru_deadline_ms", 0, ["maru_deadline_ms", "from 1"]),
    ("maru_connect_s", -1, ["maru_connect_s", "above 0"]),
    ("maru_connect_s", "5", ["maru_connect_s", "seconds"]),
    ("maru_required", "yes", ["maru_required", "true or false"]),
    ("maru_verify", "always", ["maru_verify", "'off' or 'load'"]),
    ("maru_socket", "/" + "x" * 200, ["maru_socket", "107"]),
    # of the older connector
    ("maru_pool_size", "1G", ["maru_pool_size", "maru_cpu_pool_size"]),
    ("maru_server_url", "tcp://h:1", ["maru_server_url", "maru_socket"]),
    ("maru_chunk_size", "4M", ["maru_chunk_size", "maru_kv_chunk_tokens"]),
    ("maru_timeout_ms", 5000, ["maru_timeout_ms", "maru_deadline_ms"]),
    ("maru_async_load", True, ["maru_async_load", "must be false"]),
    ("maru_async_store", True, ["maru_async_store", "must be false"]),
    ("maru_use_layerwise", True, ["maru_use_layerwise", "must be false"]),
    ("maru_overlap_load_with_compute", 1, ["maru_overlap_load_with_compute", "must be false"]),
    # misspelt
    ("maru_cpu_pool_sise", "8G", ["maru_cpu_pool_sise", "maru_cpu_pool_size"]),
    ("maru_quux", 1, ["maru_quux", "not a setting"]),
]

SIZES = {
    "8G": 8 << 30,
    "8g": 8 << 30,
    "8GiB": 8 << 30,
    "8GB": 8 << 30,
    "512M": 512 << 20,
    "1024K": 1 << 20,
    "1.5G": 3 << 29,
    "4096": 4096,
    4096: 4096,
    "16 MiB": 16 << 20,
    " 2k ": 2048,
}
BAD_SIZES = ["-5", "", "8X", "50%", "0", "1e30G", "99999999999G", "8GG", "0x10", "G", "1.", 1.5, True]

ENGINE = [
    ({"kv_transfer_config__kv_load_failure_policy": "fail"}, ["kv_load_failure_policy", "'fail'", "'recompute'"]),
    ({"kv_transfer_config__kv_load_failure_policy": None}, ["kv_load_failure_policy", "missing", "'recompute'"]),
    ({"kv_transfer_config__kv_role": "kv_producer"}, ["kv_role", "'kv_both'"]),
    ({"parallel_config__tensor_parallel_size": 2}, ["tensor_parallel_size is 2", "must be 1"]),
    ({"parallel_config__pipeline_parallel_size": 2}, ["pipeline_parallel_size is 2", "must be 1"]),
    ({"parallel_config__data_parallel_size": 2}, ["data_parallel_size is 2", "experts"]),
    ({"parallel_config__decode_context_parallel_size": 2}, ["decode_context_parallel_size"]),
    ({"parallel_config__prefill_context_parallel_size": 2}, ["prefill_context_parallel_size"]),
    ({"model_config__enforce_eager": False}, ["enforce_eager", "must be true"]),
    ({"model_config__use_mla": True}, ["MLA"]),
    ({"model_config__get_sliding_window": lambda: 4096}, ["sliding window of 4096"]),
    ({"scheduler_config__async_scheduling": True}, ["async_scheduling", "must be false"]),
    ({"cache_config__cache_dtype": "fp8"}, ["kv_cache_dtype", "'fp8'", "'auto'"]),
    ({"speculative_config": object()}, ["speculative_config", "absent"]),
]


def groups(*specs):
    return SimpleNamespace(
        kv_cache_groups=[SimpleNamespace(layer_names=["a"], kv_cache_spec=spec) for spec in specs]
    )


class FullAttentionSpec:
    sliding_window = attention_chunk_size = None


class SlidingWindowSpec:
    pass


class Refusals(unittest.TestCase):
    def test_each_refusal_names_the_setting_and_what_is_allowed(self):
        for name, value, words in REFUSED:
            extra = dict(GOOD)
            extra.pop(name, None)
            if value is not None:
                extra[name] = value
            with self.subTest(name=name, value=value), self.assertRaises(ConfigError) as caught:
                Settings.parse(extra)
            self.assert_one_sentence(str(caught.exception), words)

    def test_the_engines_own_settings(self):
        self.assertEqual(list(engine_problems(vllm_config(GOOD))), [])
        for changes, words in ENGINE:
            with self.subTest(changes=changes):
                (problem,) = engine_problems(vllm_config(GOOD, **changes))
                self.assert_one_sentence(problem, words)

    def test_the_kv_cache_groups(self):
        def problems(config):
            return list(engine_problems(vllm_config(GOOD), config))

        self.assertEqual(problems(groups(FullAttentionSpec())), [])
        (two,) = problems(groups(FullAttentionSpec(), FullAttentionSpec()))
        self.assert_one_sentence(two, ["2 KV cache groups"])
        (window,) = problems(groups(SlidingWindowSpec()))
        self.assert_one_sentence(window, ["SlidingWindowSpec", "FullAttentionSpec"])

    def assert_one_sentence(self, text, words):
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn("\n", text)
        self.assertLess(len(text), 250)

    def test_a_layout_that_cannot_be_moved(self):
        def config(**changes):
            made = groups(SimpleNamespace(page_size_bytes=32))
            made.num_blocks = 8
            vars(made).update(changes)
            return made

        good = Tensor(8, 4)
        self.assertEqual(read_layout({"a": good}, config(), 4).block_bytes, 32)
        halves = Tensor(16, 2)  # each block of the manager is two rows
        self.assertEqual(read_layout({"a": halves}, config(), 4).block_bytes, 32)
        kv_first = Tensor(8, 4)
        kv_first.shape = (2, 8, 2, 1)
        padded = Tensor(8, 4)
        padded.stride = lambda: (6, 4, 1, 1)
        interleaved = Tensor(8, 4)
        interleaved.stride = lambda: (1, 4, 8, 1)
        xpu, gpu, other_gpu = (Tensor(8, 4) for _ in range(3))
        xpu.device = SimpleNamespace(type="xpu", index=0)
        gpu.device = SimpleNamespace(type="cuda", index=0)
        other_gpu.device = SimpleNamespace(type="cuda", index=1)
        self.assertEqual(read_layout({"a": other_gpu}, config(), 4).device, 1)
        two = groups(SimpleNamespace(page_size_bytes=32))
        two.num_blocks = 8
        two.kv_cache_groups[0].layer_names = ["a", "b"]
        for caches, word in (
            ({"a": gpu, "b": Tensor(8, 4)}, "CPU"),
            ({"a": gpu, "b": other_gpu}, "GPU 1"),
        ):
            with self.assertRaises(ConfigError) as caught:
                read_layout(caches, two, 4)
            self.assert_one_sentence(str(caught.exception), ["GPU 0", word])
        for caches, change, words in (
            ({"a": kv_first}, {}, ["(2, 8, 2, 1)", "8 blocks"]),
            ({"a": padded}, {}, ["strides", "contiguous"]),
            ({"a": interleaved}, {}, ["strides", "contiguous"]),
            ({"a": xpu}, {}, ["xpu", "'cpu'"]),
            ({"b": good}, {}, ["without a"]),
            ({"a": good, "b": good}, {}, ["2 KV caches", "1 layers"]),
            ({"a": Tensor(8, 8)}, {}, ["64 bytes", "32"]),
        ):
            with self.subTest(words=words), self.assertRaises(ConfigError) as caught:
                read_layout(caches, config(**change), 4)
            self.assert_one_sentence(str(caught.exception), words)


class Accepted(unittest.TestCase):
    def test_the_rfcs_keys_and_the_defaults(self):
        settings = Settings.parse(
            dict(
                GOOD,
                maru_storage_backend="cpu",
                maru_write_order=["cpu"],
                maru_read_order=["cpu"],
                other_connectors_key=1,
            )
        )
        self.assertEqual(settings.cpu_pool_size, 8 << 30)
        self.assertEqual(settings.kv_chunk_tokens, 256)
        self.assertEqual(settings.cpu_scope, "host")
        self.assertEqual(settings.deadline_ms, 50)
        self.assertEqual(settings.connect_s, 5)
        self.assertEqual((settings.required, settings.verify), (False, "off"))

    def test_chunks_are_rounded_up_to_whole_blocks(self):
        settings = Settings.parse(dict(GOOD, maru_kv_chunk_tokens=250))
        self.assertEqual([settings.chunk_tokens(n) for n in (16, 32, 128, 250, 256)], [256, 256, 256, 250, 256])

    def test_sizes_mean_what_they_mean_in_marud(self):
        for text, size in SIZES.items():
            self.assertEqual(parse_size(text), size, text)
        for text in BAD_SIZES:
            with self.subTest(text=text), self.assertRaises(ConfigError) as caught:
                Settings.parse(dict(GOOD, maru_cpu_pool_size=text))
            self.assertIn("maru_cpu_pool_size", str(caught.exception))
            self.assertIn(str(text), str(caught.exception))

    def test_what_has_no_meaning_any_more_is_warned_of_once(self):
        extra = dict(GOOD, maru_async_load=False, **{name: 1 for name in IGNORED})
        with self.assertLogs("maru_vllm", logging.WARNING) as log:
            Settings.parse(extra)
        self.assertEqual(len(log.records), len(IGNORED))

    def test_each_data_parallel_core_is_an_engine(self):
        self.assertEqual(effective_engine_id("a", "0f0e"), "a")
        self.assertEqual(effective_engine_id("a", "0f0e_dp3"), "a_dp3")
        self.assertEqual(effective_engine_id("a", None), "a")
        self.assertEqual(effective_engine_id("a", "x_dpy"), "a")

    def test_the_socket_is_libmarus_own_choice(self):
        with unittest.mock.patch.dict(os.environ, {"MARU_SOCKET": "/x/y"}):
            self.assertEqual(default_socket(), "/x/y")
        with tempfile.TemporaryDirectory() as runtime:
            user = pathlib.Path(runtime, "maru", "marud.sock")
            user.parent.mkdir()
            user.touch()
            with unittest.mock.patch.dict(
                os.environ, {"MARU_SOCKET": "", "XDG_RUNTIME_DIR": runtime}
            ):
                expected = "/run/maru/marud.sock"
                self.assertEqual(
                    default_socket(), expected if os.path.exists(expected) else str(user)
                )


class Namespaces(unittest.TestCase):
    """A61: two engines share a namespace exactly if each may read the other's bytes."""

    def text(self, extra=None, version="0.32.0", blocks=8, block=4, layers=("a", "b"), **changes):
        config = vllm_config(dict(GOOD, **(extra or {})), **changes)
        caches = {name: Tensor(blocks, block) for name in layers}
        kv = SimpleNamespace(
            num_blocks=blocks,
            kv_cache_layout=changes.get("layout", "LBHNC"),
            kv_cache_groups=[
                SimpleNamespace(
                    layer_names=list(layers),
                    kv_cache_spec=SimpleNamespace(page_size_bytes=8 * block),
                )
            ],
        )
        settings = Settings.parse(config.kv_transfer_config.kv_connector_extra_config)
        return namespace_text(
            settings, config, read_layout(caches, kv, block), settings.chunk_tokens(block), version
        )

    def test_what_is_of_one_process_changes_nothing(self):
        base = self.text()
        self.assertEqual(self.text(), base)
        self.assertEqual(self.text(blocks=16), base)
        self.assertEqual(self.text({"maru_engine_id": "b", "maru_cpu_pool_size": "1G"}), base)
        moved = self.text(model_config__hf_config=SimpleNamespace(
            to_dict=lambda: {"hidden_size": 64, "_name_or_path": "/elsewhere"}
        ))
        self.assertEqual(moved, base)

    def test_everything_that_matters_is_another_namespace(self):
        texts = [
            self.text(),
            self.text({"maru_cache_namespace": "model@2"}),
            self.text({"maru_kv_chunk_tokens": 512}),
            self.text({"maru_verify": "load"}),
            self.text(version="0.31.0"),
            self.text(block=8),
            self.text(layers=("a", "b", "c")),
            self.text(layers=("b", "a")),
            self.text(layout="BLHNC"),
            self.text(model_config__dtype="bfloat16"),
            self.text(model_config__revision="abc"),
            self.text(model_config__quantization="awq"),
            self.text(model_config__get_head_size=lambda: 64),
            self.text(model_config__hf_config=SimpleNamespace(to_dict=lambda: {"hidden_size": 65})),
        ]
        self.assertEqual(len(set(texts)), len(texts))
        self.assertLess(max(len(text) for text in texts), 16384)


class Check(unittest.TestCase):
    """``python -m maru_vllm.check``: the same sentences without an engine, and without vLLM."""

    def run_check(self, config, *arguments):
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
        return subprocess.run(
            [sys.executable, "-S", "-m", "maru_vllm.check", "-", *arguments],
            input=config if isinstance(config, str) else json.dumps(config),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def transfer(self, **extra):
        return {
            "kv_connector": "MaruConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": dict(GOOD, **extra),
        }

    def test_a_good_one(self):
        for config in (GOOD, self.transfer(), {"kv_transfer_config": self.transfer()}):
            done = self.run_check(config)
            self.assertEqual((done.returncode, done.stderr), (0, ""), config)

    def test_the_same_sentences_as_at_construction(self):
        for name, value, words in REFUSED:
            extra = {key: text for key, text in GOOD.items() if key != name}
            if value is not None:
                extra[name] = value
            found = check.problems(json.dumps(extra))
            self.assertEqual(len(found), 1, found)
            for word in words:
                self.assertIn(word, found[0])

    def test_engine_arguments(self):
        done = self.run_check(
            {
                "kv_transfer_config": dict(self.transfer(), kv_load_failure_policy="fail"),
                "tensor_parallel_size": 2,
                "enforce_eager": False,
            }
        )
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 3, done.stderr)

    def test_misplaced_and_doubled_keys(self):
        self.assertIn(
            "inside kv_connector_extra_config",
            self.run_check({"kv_transfer_config": dict(self.transfer(), maru_verify="off")}).stderr
            or "",
        )
        doubled = '{"maru_engine_id": "a", "maru_engine_id": "b"}'
        self.assertIn("maru_engine_id is given twice", self.run_check(doubled).stderr)
        self.assertEqual(self.run_check("[]").returncode, 1)
        self.assertEqual(self.run_check("{").returncode, 1)

    def test_a_file_that_is_not_there(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(check.main(["/nowhere.json"]), 2)
        self.assertIn("/nowhere.json", said.getvalue())


class Documented(unittest.TestCase):
    def test_every_setting_has_a_default_and_a_meaning(self):
        readme = (pathlib.Path(__file__).resolve().parents[3] / "README.md").read_text()
        rows = re.findall(r"^\| (`maru_.*?) \| (.*?) \| .*\|$", readme, flags=re.M)
        told = {}
        for names, defaults in rows:
            names = re.findall(r"`(\w+)`", names)
            split = defaults.split(", ") if len(names) > 1 else [defaults]
            told.update(zip(names, split))
        self.assertEqual(set(told), set(SETTINGS))
        for name, setting in SETTINGS.items():
            self.assertTrue(setting.meaning, name)
            if name != "maru_socket":
                self.assertEqual(told[name].strip('`"'), setting.default or "required", name)
        self.assertEqual(
            [name for name, setting in SETTINGS.items() if setting.default is None],
            ["maru_cpu_pool_size", "maru_engine_id", "maru_cache_namespace"],
        )


if __name__ == "__main__":
    unittest.main()
