#!/usr/bin/env python3
"""Kills one process of a socket job at a random time, again and again.

usage: kill_runs.py PIPEWRIGHT [RUNS [SEED]]

Each run starts four processes of `execute --bootstrap`, one of them sometimes
late, and sends one of them SIGTERM, SIGKILL or SIGHUP: before, while or after
they meet, or in the run. The others have to end within two seconds of it and
name it. Counted apart are runs whose victim had no connection with another when
it was ended: the others cannot know of it, wait for --timeout and name it.
"""
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

PROCESSES = 4
TIMEOUT_S = 8
LIMIT_S = 2.0
SIGNALS = [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP]
ESTABLISHED = '01'


def is_connected(pid):
    """Whether a stopped process has a connection over TCP."""
    inodes = set()
    try:
        for name in os.listdir(f'/proc/{pid}/fd'):
            target = os.readlink(f'/proc/{pid}/fd/{name}')
            if target.startswith('socket:['):
                inodes.add(target[8:-1])
        with open(f'/proc/{pid}/net/tcp') as table:
            rows = [line.split() for line in list(table)[1:]]
    except OSError:
        return False
    return any(row[3] == ESTABLISHED and row[9] in inodes for row in rows)


def start(binary, folder, rank, steps):
    with open(f'{folder}/out{rank}', 'w') as out:
        return subprocess.Popen(
            [binary, 'execute', '--model', 'gpt-tiny', '--schedule', '1f1b',
             '--pp', str(PROCESSES), '--microbatches', '4', '--no-check',
             '--set', 'model.hidden=64', '--set', 'model.ffn_hidden=256',
             '--steps', str(steps), '--timeout', str(TIMEOUT_S), '--bootstrap',
             f'file:{folder}/job', '--rank', str(rank), '--ranks',
             str(PROCESSES)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def run(binary, chance):
    """What happened, and a text for it where it is wrong."""
    victim = chance.randrange(PROCESSES)
    late = chance.choice([None] + [r for r in range(PROCESSES) if r != victim])
    kind = chance.choice(SIGNALS)
    # Mostly from its first connection on: the meeting, the agreement, the run.
    awaits = chance.random() < 0.9
    delay_s = chance.choice([0.01, 0.05, 0.2, 1.5]) * chance.random()
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        ranks = [r for r in range(PROCESSES) if r != late]
        chance.shuffle(ranks)
        for rank in ranks:
            jobs[rank] = start(binary, folder, rank, 1000)
        pid = jobs[victim].pid
        started_s = time.monotonic()
        while awaits and time.monotonic() - started_s < 3:
            if is_connected(pid):
                break
            time.sleep(0.001)
        time.sleep(delay_s)
        os.kill(pid, signal.SIGSTOP)
        while True:
            with open(f'/proc/{pid}/stat') as stat:
                if stat.read().rsplit(')', 1)[1].split()[0] in 'TZ':
                    break
        known = is_connected(pid)
        os.kill(pid, kind)
        os.kill(pid, signal.SIGCONT)
        lost_s = time.monotonic()
        if late is not None:
            jobs[late] = start(binary, folder, late, 1000)
        took_s = 0
        wrong = []
        while jobs:
            for rank, job in list(jobs.items()):
                if job.poll() is None:
                    continue
                took_s = time.monotonic() - lost_s
                del jobs[rank]
                if rank == victim:
                    continue
                with open(f'{folder}/out{rank}') as out:
                    text = out.read()
                if job.returncode != 1 or (
                        f'process {victim}' not in text and
                        f'rank {victim}: ' not in text):
                    wrong.append(f'{rank} exits with {job.returncode}: {text}')
            time.sleep(0.005)
        what = (f'victim {victim}, {kind.name} after {delay_s:.3f} s, late '
                f'{late}, known {known}: {took_s:.2f} s')
        if known and took_s > LIMIT_S:
            wrong.append('took too long')
        return known, took_s, what, wrong


def main():
    binary = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    counts = collections.Counter()
    longest_s = 0
    for number in range(runs):
        chance = random.Random(f'{seed}.{number}')
        known, took_s, what, wrong = run(binary, chance)
        counts['known' if known else 'not known'] += 1
        if known:
            longest_s = max(longest_s, took_s)
        if wrong:
            counts['wrong'] += 1
            print(f'run {number}: {what}', *wrong, sep='\n  ', flush=True)
    print(f'{runs} runs: {counts["known"]} with a victim that was known, the '
          f'longest {longest_s:.2f} s; {counts["not known"]} before; '
          f'{counts["wrong"]} wrong')
    return 1 if counts['wrong'] else 0


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main())
