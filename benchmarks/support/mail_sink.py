"""An SMTP server that accepts every mail and keeps none, in a process of its own."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mail_sink() -> Iterator[int]:
    """Run the server while the block runs; yield its port."""
    command = [sys.executable, "-m", "benchmarks.support.mail_sink"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent.parent) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 sink\r\n")
    while line := await reader.readline():
        command = line[:4].upper().strip()
        if command == b"DATA":
            writer.write(b"354 go on\r\n")
            await reader.readuntil(b"\r\n.\r\n")
        writer.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")
        if command == b"QUIT":
            break
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=16 * 1024 * 1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
