"""The server's side of SPDY/3.1, as far as kubectl's exec, cp and port-forward
speak it: the client opens streams, and both write to them. Flow control is left
out, as Kubernetes leaves it out."""

import functools
import re
import shutil
import struct
import threading
import zlib

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
FIN = 1
FIRST_WORDS = b"\0\0\0\7options\0\0\0\4head"  # of the dictionary
LENGTH, CHECKSUM = 1423, 0xe3c6a7c2


@functools.cache
def dictionary():
    """What headers are compressed with: kubectl has it, too."""
    with open(shutil.which("kubectl"), "rb") as program:
        text = program.read()
    for found in re.finditer(re.escape(FIRST_WORDS), text):
        words = text[found.start():found.start() + LENGTH]
        if zlib.adler32(words) == CHECKSUM:
            return words
    raise RuntimeError("kubectl speaks no SPDY/3.1")


class Stream:
    """One of a connection's: what is written to `write` reaches the client, and
    what the client writes goes to `receive`, None at its end."""

    def __init__(self, connection, number, headers):
        self.connection = connection
        self.number = number
        self.headers = headers
        self.receive = lambda data: None
        self.early = []

    def on_data(self, receive):
        with self.connection.reading:
            self.receive = receive
            for data in self.early:
                receive(data)
            self.early = None

    def got(self, data):
        with self.connection.reading:
            if self.early is None:
                self.receive(data)
            else:
                self.early.append(data)

    def write(self, data):
        for at in range(0, len(data), 65536):
            self.connection.send_data(self.number, 0, data[at:at + 65536])

    def close(self):
        self.connection.send_data(self.number, FIN, b"")


class Connection:
    """Over the files of a socket. `on_stream` is called with each stream that
    the client opens, on the thread of run(), which ends with the client."""

    def __init__(self, reader, writer, on_stream):
        self.reader = reader
        self.writer = writer
        self.on_stream = on_stream
        self.streams = {}
        self.writing = threading.Lock()
        self.reading = threading.RLock()
        self.inflate = zlib.decompressobj(zdict=dictionary())
        self.deflate = zlib.compressobj(zdict=dictionary())

    def run(self):
        while (head := self.reader.read(8)) and len(head) == 8:
            first, second = struct.unpack(">II", head)
            flags, length = second >> 24, second & 0xffffff
            payload = self.reader.read(length)
            if len(payload) < length:
                break
            if first >> 31:
                self.control(first & 0xffff, flags, payload)
            elif first in self.streams:
                if payload:
                    self.streams[first].got(payload)
                if flags & FIN:
                    self.streams[first].got(None)
        for stream in list(self.streams.values()):
            stream.got(None)

    def control(self, kind, flags, payload):
        if kind == SYN_STREAM:
            number = struct.unpack(">I", payload[:4])[0]
            stream = Stream(self, number, self.headers(payload[10:]))
            self.streams[number] = stream
            block = self.deflate.compress(b"\0\0\0\0")
            block += self.deflate.flush(zlib.Z_SYNC_FLUSH)
            self.send(SYN_REPLY, struct.pack(">I", number) + block)
            self.on_stream(stream)
            if flags & FIN:
                stream.got(None)
        elif kind == RST_STREAM:
            number = struct.unpack(">I", payload[:4])[0]
            stream = self.streams.pop(number, None)
            if stream:
                stream.got(None)
        elif kind == PING:
            self.send(PING, payload)

    def headers(self, block):
        text = self.inflate.decompress(block)
        fields, at = [], 4
        while at < len(text):
            length = struct.unpack(">I", text[at:at + 4])[0]
            fields.append(text[at + 4:at + 4 + length].decode())
            at += 4 + length
        return {name.lower(): value
                for name, value in zip(fields[::2], fields[1::2])}

    def send(self, kind, payload):
        self.send_frame(0x80030000 | kind, 0, payload)

    def send_data(self, number, flags, payload):
        self.send_frame(number, flags, payload)

    def send_frame(self, first, flags, payload):
        try:
            with self.writing:
                self.writer.write(struct.pack(
                    ">II", first, flags << 24 | len(payload)) + payload)
                self.writer.flush()
        except (OSError, ValueError):
            pass  # The client left; run() ends, or has.
