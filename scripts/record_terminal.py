#!/usr/bin/env python3
"""Records docs/images/terminal.cast: the main commands on a terminal of 80 columns, in an empty folder.

    make build && scripts/record_terminal.py docs/images/terminal.cast
"""
import fcntl, json, os, pty, struct, sys, tempfile, termios, time

COMMANDS = [  # what is typed, and at which text Ctrl-C is pressed
    ("run", None), ("run doctor", None), ("run exp=okvqa_v3 grpo.kl.betta=0.1", None),
    ("run exp=okvqa_v3 rce.epochs=200 hydra.run.dir=outputs/long", "rce  "),
    ("run exp=okvqa_v3 hydra.run.dir=outputs/long", None),
    ("run -m exp=shapes_probe seed=0,1 rce.lr=1e-3,1e-2 hydra/launcher=local hydra.sweep.dir=multirun/lr", None),
    ("run status multirun/lr", None), ("run ls", None),
]
PAUSE = 1.5  # seconds to read in

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
begun, events = time.monotonic(), []
def say(text): events.append([round(time.monotonic() - begun, 3), "o", text])

with tempfile.TemporaryDirectory(prefix="fulcrum-") as folder:
    for line, stop in COMMANDS:
        say(f"$ {line}\r\n")
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ["TERM"] = "xterm"
            os.execv(os.path.join(here, "bin", "run"), line.split())
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        said, pressed = "", False
        while True:
            try:
                text = os.read(fd, 1 << 16).decode(errors="replace")
            except OSError:  # it has ended
                break
            say(text)
            said += text
            if stop and not pressed and stop in said:
                os.write(fd, b"\x03")
                pressed = True
        os.waitpid(pid, 0)
        time.sleep(PAUSE)

with open(sys.argv[1], "w") as f:
    f.write(json.dumps({"version": 2, "width": 80, "height": 24, "idle_time_limit": 2, "title": "Fulcrum's commands in a terminal"}) + "\n")
    f.writelines(json.dumps(e, ensure_ascii=False) + "\n" for e in events)
