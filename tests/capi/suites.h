// The tables of tests, one a file. No include guard: read twice.
SUITE(arguments)
SUITE(async)
SUITE(fork)
SUITE(key)
SUITE(objects)
SUITE(pools)
SUITE(restart)
SUITE(sessions)
