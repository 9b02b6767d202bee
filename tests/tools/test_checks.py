"""The checks of tools/ pass on this tree, and each of them goes red on a tree that breaks its rule."""
import os
import re
import shutil

from impeltest import BUILD, SOURCE, check, contains, equal, main, run, test

LIBRARY = BUILD / "src/lib/libimpel.so"


def broken_tree(tmp):
    """A small copy of the tree's skeleton, under git, for a check to be wrong in."""
    shutil.copytree(SOURCE / "tools", tmp / "tools")
    shutil.copy(SOURCE / "ARCHITECTURE.md", tmp)
    for room in ("base", "core", "net"):
        os.makedirs(tmp / "src" / room)
    equal(run(["git", "init", "-q", tmp]).code, 0)
    return tmp


def tool(tree, name, *args):
    return run([tree / "tools" / name, *args], cwd=str(tree))


@test
def this_tree_is_good(_tmp):
    for name in ("check-layers", "check-size"):
        done = tool(SOURCE, name)
        equal(done.code, 0, done.err)
    done = tool(SOURCE, "check-exports", LIBRARY)
    equal(done.code, 0, done.err)


@test
def each_row_of_what_is_owed_to_people_has_a_test(_tmp):
    rows = re.findall(r"^\| ([A-F]\d+) \|", (SOURCE / "tests/README.md").read_text(), re.M)
    equal((len(rows), len(set(rows))), (21, 21))
    tests = "\n".join(path.read_text() for ending in ("py", "c") for path in (SOURCE / "tests").rglob("*." + ending))
    equal([row for row in rows if not re.search(r"\b%s\b" % row, tests)], [])


@test
def a_forbidden_include_is_named(tmp):
    tree = broken_tree(tmp)
    (tree / "src/base/a.h").write_text("")
    (tree / "src/core/a.c").write_text('#include "base/a.h"\n#include <stdio.h>\n')
    equal(tool(tree, "check-layers").code, 0)
    (tree / "src/core/b.c").write_text("\n#include <uv.h>\n")
    (tree / "src/base/b.c").write_text('#include "core/c.h"\n')
    (tree / "src/core/c.h").write_text("")
    done = tool(tree, "check-layers")
    equal(done.code, 1)
    contains(done.err, "src/core/b.c:2: src/core may not use libuv")
    contains(done.err, "src/base/b.c:1: src/base may not use src/core")


@test
def long_functions_and_files_are_named(tmp):
    tree = broken_tree(tmp)
    (tree / "src/core/a.c").write_text("int f(void)\n{\n" + "    g();\n" * 67 + "}\n")
    equal(tool(tree, "check-size").code, 0)
    (tree / "src/core/a.c").write_text("int f(void)\n{\n" + "    g();\n" * 68 + "}\n")
    contains(tool(tree, "check-size").err, "src/core/a.c:1: 71 lines")
    (tree / "src/core/b.c").write_text("int x;\n" * 801)
    contains(tool(tree, "check-size").err, "src/core/b.c: 801 lines")


@test
def a_changed_export_is_named(tmp):
    tree = broken_tree(tmp)
    with open(tree / "tools/exports.list", "a", encoding="utf-8") as file:
        file.write("impel_zzz_not_there\n")
    done = tool(tree, "check-exports", LIBRARY)
    check(done.code != 0)
    contains(done.err, "-impel_zzz_not_there")


@test
def notes_to_oneself_are_found(tmp):
    tree = broken_tree(tmp)
    equal(run(["git", "-C", tree, "add", "-A"]).code, 0)
    equal(tool(tree, "check-words").code, 0)
    (tree / "src/core/a.c").write_text("/* TO" + "DO: later */\n")
    equal(run(["git", "-C", tree, "add", "-A"]).code, 0)
    contains(tool(tree, "check-words").out, "src/core/a.c:1")


main()
