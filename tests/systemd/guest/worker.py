"""A worker that does what it is told, a line of JSON each, and ends with its standard input.

It never stores an object twice: what verify finds after marud's death is what was there before.
"""

import json
import os
import sys

# Where meson installs below /usr/local; Debian's Python looks there for packages of its version only.
sys.path.append("/usr/local/lib/python3/dist-packages")

import maru

BYTES = 65536


def pattern(number):
    return bytes([number % 251 + 1]) * BYTES


def serve(options):
    client = maru.Client(options["engine"], socket_path=options.get("socket"))
    ns = client.namespace("test of the units")
    ns.describe(BYTES, format="raw-v1")
    pool = client.pool(options.get("bytes", 8 << 20), wait_populated=True,
                       huge_pages=options.get("huge_pages", "off"))
    digests = ns.digests(list(range(64)), 1)
    stored = 0
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = {}
        if request["verb"] == "store":
            stored = request["count"]
            ns.store(pool, digests[:stored], [pattern(n) for n in range(stored)]).raise_failed()
            answer["stored"] = stored
        elif request["verb"] == "verify":
            with ns.acquire(digests[:stored]) as leases:
                found = [(n, lease) for n, lease in enumerate(leases) if lease is not None]
                wrong = [n for n, lease in found if lease.view != pattern(n)]
            answer = {"error": f"wrong bytes in {wrong}"} if wrong else {"hits": len(found)}
        elif request["verb"] == "info":
            answer = {**client.info()._asdict(), "page": pool.info().backing_page_bytes}
        print(json.dumps(answer), flush=True)
    pool.close(forced=True)
    client.close()


try:
    serve(json.loads(sys.argv[1]))
except maru.MaruError as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
    sys.exit(1)
