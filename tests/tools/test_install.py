"""What `make install` leaves is enough for other people's programs, shared and static."""
import os
import shlex
import shutil

from impeltest import BUILD, SOURCE, contains, equal, main, run, skip, test

PREFIX = "/usr/local"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def installed(tmp):
    """Installs into a folder of its own; returns the root of what was installed."""
    done = run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp / "root"])
    equal(done.code, 0, done.out + done.err)
    return str(tmp / "root") + PREFIX


def pkg_config(root, *args, package="impel"):
    folders = [os.path.join(f, "pkgconfig") for f, _, _ in os.walk(root)]
    done = run(["pkg-config", "--define-variable=prefix=" + root, *args, package],
               env={"PKG_CONFIG_PATH": ":".join(folders)})
    equal(done.code, 0, done.err)
    return shlex.split(done.out)


def library_folder(root):
    return next(f for f, _, names in os.walk(root) if "libimpel.a" in names)


def compile_ok(*argv):
    done = run(["cc", *argv])
    equal(done.code, 0, done.err)


def programs(tmp):
    """One that includes every public header, and the examples."""
    headers = sorted(p.name for p in (SOURCE / "include/impel").glob("*.h"))
    program = tmp / "all.c"
    program.write_text("".join('#include <impel/%s>\n' % h for h in headers)
                       + "#include <stdio.h>\nint main(void)\n{\n    puts(impel_version());\n}\n")
    return [program, *sorted((SOURCE / "examples").glob("*.c"))]


@test
def programs_link_with_the_shared_library(tmp):
    root = installed(tmp)
    for source in programs(tmp):
        compile_ok(*STRICT, source, "-o", tmp / source.stem, *pkg_config(root, "--cflags", "--libs"),
                   "-pthread")
    done = run([tmp / "all"], env={"LD_LIBRARY_PATH": library_folder(root)})
    equal(done.code, 0, done.err)
    equal(done.out, run([root + "/bin/impel", "version"]).out.split()[-1] + "\n")
    run_examples(tmp, {"LD_LIBRARY_PATH": library_folder(root)})


def run_examples(tmp, env):
    """Orders go in by one example and come out of the other, a bad one to the dead letters."""
    store = "lmdb:%s/orders.db" % tmp
    done = run([tmp / "producer", store, "200"], env=env)
    equal(done.code, 0, done.err)
    bad = run([BUILD / "impel", "add", "--store", store, "--stream", "orders", "amount=1"])
    equal(bad.code, 0, bad.err)
    done = run([tmp / "worker", store, "until-idle"], env=env)
    equal(done.code, 0, done.err)
    equal(sorted(done.out.splitlines()),
          sorted("order %d: %d.50" % (n, n % 100) for n in range(1, 201)))
    contains(done.err, "parked")
    contains(done.err, "it has no order_id")
    dead = run([BUILD / "impel", "call", "--store", store, "XLEN", "orders:dead"])
    equal(dead.out, "1\n", dead.err)


@test
def programs_link_with_the_archive(tmp):
    root = installed(tmp)
    # Only libimpel itself as an archive: what it needs in turn comes as the machine has it.
    libraries = ["-pthread"]
    for package in pkg_config(root, "--print-requires-private"):
        libraries += pkg_config(root, "--libs", package=package)
    for source in programs(tmp):
        compile_ok(*STRICT, source, library_folder(root) + "/libimpel.a", "-o", tmp / source.stem,
                   *pkg_config(root, "--cflags"), *libraries)
    done = run([tmp / "all"])
    equal(done.code, 0, done.err)
    run_examples(tmp, None)


@test
def headers_are_fit_for_cpp(tmp):
    if shutil.which("c++") is None:
        skip("no C++ compiler here")
    root = installed(tmp)
    source = tmp / "all.cpp"
    source.write_text("#include <impel/impel.h>\nint main()\n{\n"
                      "    return impel_version() == nullptr;\n}\n")
    done = run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-o", tmp / "cpp",
                *pkg_config(root, "--cflags", "--libs")])
    equal(done.code, 0, done.err)
    equal(run([tmp / "cpp"], env={"LD_LIBRARY_PATH": library_folder(root)}).code, 0)


@test
def every_header_stands_alone(tmp):
    root = installed(tmp)
    for header in sorted((SOURCE / "include/impel").glob("*.h")):
        source = tmp / "one.c"
        source.write_text("#include <impel/%s>\nint main(void)\n{\n    return 0;\n}\n" % header.name)
        compile_ok(*STRICT, "-fsyntax-only", source, *pkg_config(root, "--cflags"))


main()
