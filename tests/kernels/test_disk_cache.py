"""Compiled kernels on disk: names that no two codes share, folders that can only be read, damage."""

import itertools
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace

import numba
import pytest

from sstq.kernels import disk_cache, target
from sstq.kernels.disk_cache import KernelCache, Places


def double(x):
    """A kernel whose code for other types gives other results."""
    return x + x


@pytest.fixture
def use(monkeypatch):
    """Sets the folders to read, and the one to write to."""

    def use(*read, write=None):
        monkeypatch.setattr(disk_cache, "places", lambda: Places(read, write))

    return use


def process():
    """The kernel as another process would have it: nothing compiled yet."""
    return target.compiled(double)


def run(kind, kernel=None):
    """Call the kernel; returns its result and whether it came from the disk."""
    kernel = kernel or process()
    kernel.compile((kind,))
    return kernel(kind(3)), bool(kernel.stats.cache_hits)


def test_code_is_kept_and_found(tmp_path, use):
    use(tmp_path, write=tmp_path)
    assert run(numba.int64) == (6, False)
    assert run(numba.int64) == (6, True)
    assert run(numba.float64) == (6.0, False)
    assert len(list(tmp_path.iterdir())) == 2
    assert process().stats.cache_path == str(tmp_path)


def test_processes_that_save_at_the_same_time_do_not_mix_up_their_code(tmp_path, monkeypatch, use):
    # Each sees an empty folder, and then they write in every order.
    kinds, saves = {numba.int64: int, numba.float64: float, numba.complex128: complex}, []
    for number, kind in enumerate(kinds):
        folder = tmp_path / f"seen by {number}"
        folder.mkdir()
        use(folder, write=folder)
        writes = []

        @contextmanager
        def recorded(path, writes=writes):
            with TemporaryFile() as file:
                yield file
                file.seek(0)
                writes.append((path.name, file.read()))

        with monkeypatch.context() as patch:
            patch.setattr(disk_cache, "atomic_file", recorded)
            run(kind)
        saves.append(writes)
    orders = {tuple(order) for order in itertools.permutations([i for i, s in enumerate(saves) for _ in s])}
    for number, order in enumerate(orders):
        folder = tmp_path / f"order {number}"
        folder.mkdir()
        use(folder, write=folder)
        queues = [iter(writes) for writes in saves]
        for turn in order:
            name, data = next(queues[turn])
            (folder / name).write_bytes(data)
        for kind, python_type in kinds.items():
            result, found = run(kind)
            assert found
            assert type(result) is python_type
            assert result == 6


def name(kernel=double, signature=(numba.int64,), processor="one", sources="s" * 64, width="8"):
    codegen = SimpleNamespace(magic_tuple=lambda: ("triple", processor, "+features"))
    return KernelCache(kernel, sources, width)._file_name(signature, codegen)


def test_whatever_code_depends_on_is_in_its_name(monkeypatch):
    def other(x):
        return x + x

    read_only = numba.types.Array(numba.uint8, 1, "C", readonly=True)
    writable = numba.types.Array(numba.uint8, 1, "C")
    names = [
        name(),
        name(other),
        name(signature=(numba.float64,)),
        name(signature=(numba.int64, numba.int64)),
        name(signature=(read_only,)),
        name(signature=(writable,)),
        name(processor="another"),
        # What the name shows of the sources is not all that counts.
        name(sources="s" * 63 + "t"),
        name(width="16"),
    ]
    monkeypatch.setattr(numba, "__version__", "another")
    names.append(name())
    monkeypatch.setattr(disk_cache, "_PYTHON", "another")
    names.append(name())
    assert len(set(names)) == len(names)


def test_kernels_are_filed_under_their_sources_and_the_vector_width():
    from sstq.kernels.hadamard import transform_rows

    cache = transform_rows._cache
    assert cache._sources == target.SOURCES == target._digest_of_sources()
    assert f"vector width {target.VECTOR_WIDTH}" in cache._target


def test_a_folder_that_can_only_be_read_is_read(tmp_path, use):
    filled, own = tmp_path / "filled", tmp_path / "own"
    filled.mkdir()
    own.mkdir()
    use(filled, write=filled)
    run(numba.int64)
    before = {path: path.read_bytes() for path in filled.iterdir()}
    # With no folder to write to, what is not there is compiled and forgotten.
    use(filled)
    assert run(numba.int64) == (6, True)
    assert run(numba.float64) == (6.0, False)
    assert run(numba.float64) == (6.0, False)
    assert process().stats.cache_path is None
    # With one, it is kept there.
    use(filled, own, write=own)
    assert run(numba.int64) == (6, True)
    assert run(numba.float64) == (6.0, False)
    assert run(numba.float64) == (6.0, True)
    assert len(list(own.iterdir())) == 1
    assert {path: path.read_bytes() for path in filled.iterdir()} == before


@pytest.mark.parametrize("chosen", [True, False])
def test_places_end_with_the_first_that_can_be_written_to(tmp_path, monkeypatch, chosen):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "chosen") if chosen else "")
    monkeypatch.setenv("SSTQ_CACHE", str(tmp_path / "user"))
    candidates = disk_cache._candidates()
    assert [path.parts[-2] for path in candidates] == ["chosen"] * chosen + ["kernels", "user"]
    for count in range(len(candidates)):
        monkeypatch.setattr(disk_cache, "_is_writable", candidates[count:].__contains__)
        expected = Places(tuple(candidates[: count + 1]), candidates[count])
        assert disk_cache.places.__wrapped__() == expected
    monkeypatch.setattr(disk_cache, "_is_writable", lambda _: False)
    assert disk_cache.places.__wrapped__() == Places(tuple(candidates), None)


def test_what_can_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert disk_cache._is_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    assert not disk_cache._is_writable(tmp_path / "file" / "folder")

    # As on a read-only disk, whatever the permissions say and whoever asks.
    def refuse(**_options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(disk_cache.tempfile, "TemporaryFile", refuse)
    assert not disk_cache._is_writable(tmp_path)


def test_damaged_code_is_compiled_again(tmp_path, use):
    use(tmp_path, write=tmp_path)
    run(numba.int64)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:10], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        assert run(numba.int64) == (6, False)
        assert run(numba.int64) == (6, True)


def test_code_of_earlier_sources_is_cleared_away(tmp_path, monkeypatch, use):
    use(tmp_path, write=tmp_path)
    (tmp_path / "test_disk_cache.double_longer-0000000000000000-0.kernel").touch()
    run(numba.int64)
    run(numba.float64)
    kept = {path.name for path in tmp_path.iterdir()}
    monkeypatch.setattr(target, "SOURCES", "1" * 64)
    run(numba.int64)
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == 2
    assert {path for path in kept if "longer" in path} == kept & left
    process()._cache.flush()
    assert {path.name for path in tmp_path.iterdir()} == kept & left


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_code_that_others_can_write_to_is_compiled_again(tmp_path, use, mode):
    use(tmp_path, write=tmp_path)
    run(numba.int64)
    (path,) = tmp_path.iterdir()
    path.chmod(mode)
    assert run(numba.int64) == (6, False)
    assert run(numba.int64) == (6, True)


@pytest.mark.parametrize(
    ("owner", "mode", "trusted"),
    [
        (os.geteuid(), 0o644, True),
        (0, 0o755, True),
        (Path(disk_cache.__file__).stat().st_uid, 0o644, True),
        (os.geteuid() + 12_345, 0o644, False),
        (os.geteuid(), 0o664, False),
        (os.geteuid(), 0o1777, False),
    ],
)
def test_whose_code_is_run(owner, mode, trusted):
    assert disk_cache._is_trusted(SimpleNamespace(st_uid=owner, st_mode=mode)) == trusted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_code_of_another_user_is_compiled_again(tmp_path, use):
    use(tmp_path, write=tmp_path)
    run(numba.int64)
    (path,) = tmp_path.iterdir()
    os.chown(path, 12_345, -1)
    assert run(numba.int64) == (6, False)
    assert run(numba.int64) == (6, True)


def test_folders_that_others_can_write_to_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "chosen"))
    first, *others = disk_cache._candidates()
    assert disk_cache.places.__wrapped__() == Places((first,), first)
    first.chmod(0o777)
    assert first not in disk_cache.places.__wrapped__().read
    monkeypatch.setattr(disk_cache, "_is_writable", lambda _: False)
    assert disk_cache.places.__wrapped__() == Places(tuple(others), None)


def test_a_lax_umask_does_not_make_own_code_untrusted(tmp_path, use):
    before = os.umask(0)
    try:
        folder = tmp_path / "own"
        assert disk_cache._is_writable(folder)
        use(folder, write=folder)
        run(numba.int64)
    finally:
        os.umask(before)
    assert disk_cache._is_trusted(folder.stat())
    assert run(numba.int64) == (6, True)
