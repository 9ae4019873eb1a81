"""Writes the seeds of frame_meter_fuzz.

The files are committed and change only when this script does. The first byte of
a seed is the size of the reads, less one, that the connection's bytes come in.
"""

import pathlib

HERE = pathlib.Path(__file__).parent
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 8, 9)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def frame(kind, flags, stream, payload=b""):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) +
            stream.to_bytes(4, "big") + payload)


def call(stream, *parts):
    """A call whose message comes in these frames."""
    frames = frame(HEADERS, END_HEADERS, stream, b"h" * 60)
    for part in parts[:-1]:
        frames += frame(DATA, 0, stream, part)
    return frames + frame(DATA, END_STREAM, stream, parts[-1])


def message(size, compressed=0):
    return bytes([compressed]) + size.to_bytes(4, "big") + b"m" * size


def stream(*parts, flags=0):
    """A call whose messages come in these frames, and which goes on."""
    return frame(HEADERS, END_HEADERS, 1, b"h" * 60) + b"".join(
        frame(DATA, flags, 1, part) for part in parts)


SEEDS = {
    "calls": (255, frame(SETTINGS, 0, 0, b"\0\4\0\1\0\0") +
              b"".join(call(s, b"m" * 69) for s in range(1, 41, 2))),
    "ends_apart": (16, b"".join(call(s, b"m" * 69, b"")
                                for s in range(1, 21, 2))),
    "pieces": (255, frame(HEADERS, END_HEADERS, 1, b"h") +
               frame(DATA, 0, 1, b"x") * 1030),
    "drip": (0, frame(HEADERS, END_HEADERS, 1, b"h") +
             frame(DATA, END_STREAM, 1, b"x" * 1040)),
    "split_heads": (4, frame(HEADERS, END_HEADERS, 1, b"h") +
                    frame(DATA, 0, 1, b"x") * 600),
    "reset": (255, frame(HEADERS, END_HEADERS, 1, b"h") +
              frame(DATA, 0, 1, b"x") * 200 +
              frame(RESET, 0, 1, b"\0\0\0\x08") +
              frame(DATA, 0, 1, b"x") * 200),
    "continued": (255, frame(HEADERS, 0, 1, b"h" * 400) +
                  frame(CONTINUATION, 0, 1, b"h" * 400) +
                  frame(CONTINUATION, END_HEADERS, 1, b"h" * 400)),
    "header_pieces": (255, frame(HEADERS, 0, 1) +
                      frame(CONTINUATION, 0, 1) * 260),
    "reader": (40, (frame(WINDOW_UPDATE, 0, 0, b"\0\0\1\0") +
                    frame(PING, 0, 0, b"p" * 8)) * 20),
    "messages": (255, stream(*[message(20)] * 600)),
    "messages_together": (90, stream(message(30) * 9 + message(0) * 2) +
                          frame(DATA, END_STREAM, 1, message(3))),
    "messages_apart": (6, stream(message(40)[:3], message(40)[3:20],
                                 message(40)[20:] + message(1, 1)[:5], b"m",
                                 b"")),
    "messages_padded": (255, stream(b"\3" + message(20) + b"\0" * 3,
                                    flags=PADDED) +
                        frame(DATA, 0, 1, message(20))),
    "messages_lost": (255, stream(message(20), b"x" * 30, message(20))),
    "truncated": (7, frame(HEADERS, END_HEADERS, 1, b"h" * 9)[:-4]),
}


def main():
    folder = HERE / "frame_meter_seeds"
    folder.mkdir(exist_ok=True)
    for name, (reads, frames) in SEEDS.items():
        (folder / name).write_bytes(bytes([reads]) + PREFACE + frames)


if __name__ == "__main__":
    main()
