"""Makes one C file of the Lua scripts: each with common.lua in front of it, comments and indentation
left out, since their text travels to the server.  embed.py OUT common.lua SCRIPT.lua..."""
import pathlib
import sys


def code(path):
    lines = (line.strip() for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("--")]


def quoted(line):
    return '    "%s\\n"' % line.replace("\\", "\\\\").replace('"', '\\"')


def main(out, common, *scripts):
    shared = code(common)
    text = ["/* Made from the scripts by embed.py. */", '#include "store/redis/script.h"', ""]
    for path in scripts:
        name = pathlib.Path(path).stem
        text += ["static const char %s_text[] =" % name,
                 "\n".join(map(quoted, shared + code(path))) + ";", ""]
    text += ["const struct script script_table[SCRIPT_COUNT] = {"]
    for path in scripts:
        name = pathlib.Path(path).stem
        text += ['    [SCRIPT_%s] = {"%s", {%s_text, sizeof(%s_text) - 1}},' % (
            name.upper(), name, name, name)]
    text += ["};", ""]
    pathlib.Path(out).write_text("\n".join(text), encoding="utf-8")


main(*sys.argv[1:])
