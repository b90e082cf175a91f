#!/usr/bin/env python3
"""A TCP proxy that injects faults by a seeded schedule: one listening port for each target, bytes forwarded as they
are (mTLS too). Its report names the faults, counts how often each kind was met, and counts the connections of each
second.

  chaos_proxy.py --ports FILE --report FILE --seed N --faults SECONDS [--kinds KIND,...] HOST:PORT...

FILE of --ports gets one port per target, in order, once all listen. Faults begin with SIGUSR1 and last for
--faults seconds. SIGUSR2 blocks the existing connections for ever: they stay open, and new ones work. SIGTERM
writes the report and ends. Kinds of faults, each on one target or on all, for 0.2 to 3 seconds:
  delay     every chunk arrives 20 to 300 ms late, in order
  throttle  100 to 2000 KiB/s
  freeze    nothing passes, connections stay open (half-open: the other side never learns it)
  reset     every connection is reset (RST), new ones are accepted
  refuse    every connection is reset and new ones are, too
  double    as reset, and new connections are made twice to the target; the second stays silent
  flip      one bit of the next chunk of each connection and direction is changed
  lose      a part of that chunk does not pass
  repeat    a part of that chunk passes twice
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import random
import signal
import socket
import struct
import sys
import time

CHUNK = 1 << 16
SPOILS = ("flip", "lose", "repeat")
KINDS = ("delay", "throttle", "freeze", "reset", "refuse", "double") + SPOILS


def spoiled(kind, data):
    """Returns the chunk with one bit flipped, a part lost, or a part repeated. Parts are short as often as long."""
    begin = random.randrange(len(data))
    end = min(len(data), begin + int(2 ** random.uniform(0, 16)))
    if kind == "flip":
        return data[:begin] + bytes([data[begin] ^ 1 << random.randrange(8)]) + data[begin + 1:]
    return data[:begin] + data[end:] if kind == "lose" else data[:end] + data[begin:]


class Target:
    """One forwarded address, its present fault, and how often bytes or connections met each kind."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.host, self.port = host, int(port)
        self.trouble = None
        self.troubles = 0
        self.level = 0.0
        self.met = collections.Counter()
        self.calm = asyncio.Event()
        self.calm.set()
        self.writers = set()
        # Connections of an earlier generation are half-open, and neither end learns it.
        self.generation = 0
        self.connections_by_second = {}

    def begin(self, kind, level):
        self.trouble, self.level = kind, level
        self.troubles += 1
        if kind == "freeze":
            self.calm.clear()
        if kind in ("reset", "refuse", "double"):
            # The maker of a new connection meets the fault: if all connections could stay, nobody would meet it
            # for long.
            self.met["reset"] += len(self.writers) if kind == "reset" else 0
            for writer in list(self.writers):
                self.reset(writer)

    def end(self):
        self.trouble = None
        self.calm.set()

    @staticmethod
    def reset(writer):
        sock = writer.get_extra_info("socket")
        # Closing sends RST. A closed connection has nothing left to reset.
        with contextlib.suppress(OSError):
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    def count_connection(self):
        second = int(time.monotonic())
        self.connections_by_second[second] = self.connections_by_second.get(second, 0) + 1

    def half_open_all(self):
        """Applies to the connections that exist now."""
        self.generation += 1

    async def pass_on(self, reader, writer):
        generation = self.generation
        spoiled_in = None
        try:
            while data := await reader.read(CHUNK):
                if self.trouble in SPOILS and spoiled_in != self.troubles:
                    spoiled_in = self.troubles
                    self.met[self.trouble] += 1
                    data = spoiled(self.trouble, data)
                if self.trouble in ("delay", "throttle", "freeze"):
                    self.met[self.trouble] += 1
                if self.trouble == "delay":
                    await asyncio.sleep(self.level)
                elif self.trouble == "throttle":
                    await asyncio.sleep(len(data) / self.level)
                await self.calm.wait()
                if generation != self.generation:
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except (ConnectionError, OSError):
            pass
        finally:
            writer.close()

    async def serve(self, reader, writer):
        self.count_connection()
        if self.trouble == "refuse":
            self.met["refuse"] += 1
            return self.reset(writer)
        try:
            back, out = await asyncio.open_connection(self.host, self.port)
            if self.trouble == "double":
                _, silent = await asyncio.open_connection(self.host, self.port)
                self.writers.add(silent)
                self.met["double"] += 1
        except OSError:
            return self.reset(writer)
        pair = {writer, out}
        self.writers |= pair
        await asyncio.gather(self.pass_on(reader, out), self.pass_on(back, writer))
        self.writers -= pair


class Schedule:
    """The seed's faults, one after the other with pauses between, on the clock that SIGUSR1 starts."""

    def __init__(self, targets, kinds, seed, seconds):
        self.targets = targets
        self.kinds = kinds
        self.random = random.Random(seed)
        self.seconds = seconds
        self.events = []

    async def run(self):
        begin = time.monotonic()
        kinds = list(self.kinds)
        self.random.shuffle(kinds)
        while time.monotonic() - begin < self.seconds:
            if not kinds:
                kinds = list(self.kinds)
                self.random.shuffle(kinds)
            kind = kinds.pop()
            hit = self.targets if self.random.random() < 0.3 else [self.random.choice(self.targets)]
            level = {"delay": self.random.uniform(0.02, 0.3),
                     "throttle": self.random.uniform(100, 2000) * 1024}.get(kind, 0.0)
            lasts = self.random.uniform(0.2, 3)
            pause = self.random.uniform(0.1, 1)
            start = time.monotonic()
            for target in hit:
                target.begin(kind, level)
            await asyncio.sleep(lasts)
            for target in hit:
                target.end()
            self.events.append({"kind": kind, "targets": [self.targets.index(t) for t in hit], "level": level,
                                "from": start, "to": time.monotonic()})
            await asyncio.sleep(pause)


async def serve(arguments):
    random.seed(arguments.seed)
    targets = [Target(address) for address in arguments.targets]
    schedule = Schedule(targets, arguments.kinds, arguments.seed, arguments.faults)
    servers = [await asyncio.start_server(target.serve, "127.0.0.1", 0, limit=4 * CHUNK) for target in targets]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    with open(arguments.ports + ".tmp", "w", encoding="utf-8") as file:
        file.write("".join(f"{port}\n" for port in ports))
    os.rename(arguments.ports + ".tmp", arguments.ports)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    healed = []

    async def trouble():
        await schedule.run()
        healed.append(time.monotonic())
        with open(arguments.report + ".healed", "w", encoding="utf-8") as file:
            file.write("healed\n")

    loop.add_signal_handler(signal.SIGUSR1, lambda: asyncio.ensure_future(trouble()))
    loop.add_signal_handler(signal.SIGUSR2, lambda: [target.half_open_all() for target in targets])
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    report = {"seed": arguments.seed, "events": schedule.events, "healed": healed,
              "met": sum((target.met for target in targets), collections.Counter()),
              "connections": [target.connections_by_second for target in targets]}
    with open(arguments.report, "w", encoding="utf-8") as file:
        json.dump(report, file)
    # Does not wait for open connections.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=float, default=5)
    parser.add_argument("--kinds", type=lambda names: names.split(","), default=KINDS)
    parser.add_argument("targets", nargs="+")
    asyncio.run(serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
