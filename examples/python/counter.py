"""Counts, and never counts twice, although the server may be killed meanwhile.

The client sends an update again until it has an answer. Each update has an identity, so the server
does it once, also if the server crashed after the first attempt and has recovered since. No code
for retries is needed here.

Try it: start `thunderhead dev`, run `python counter.py`, and kill the server with `kill -9` and
start it again while the program counts.
"""

import sys

import thunderhead

ROUNDS = 10_000


def main(url: str, rounds: int) -> None:
    # The deadline is the longest time for which the server may be away.
    with thunderhead.connect(url, deadline=60) as db:
        visits = db.table("visits", create=True)
        before = visits.get("home")
        start = before.integer() if before is not None else 0
        total = start
        for round in range(1, rounds + 1):
            total = visits.increment("home", 1).number
            if round % 100 == 0:
                print("counted", round, flush=True)
        print(f"counted {rounds} times, from {start} to {total}")
        if total != start + rounds:
            sys.exit("another program counted too, or the server counted twice")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "thunderhead://localhost",
        int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS,
    )
