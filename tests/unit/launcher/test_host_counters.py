"""Counters of cgroups, vmstat and pressure, read from texts as real machines have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.launcher import host_counters

V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)
EVENTS = "low 0\nhigh 12\nmax 345\noom 3\noom_kill {kills}\noom_group_kill 1\n"


def put(root: Path, **texts: str) -> None:
    """Files below `root`; `__` separates folders."""
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def v2_machine(root: Path, membership: str = "0::/user.slice/job.scope\n") -> None:
    put(root, proc__self__cgroup=membership, proc__self__mountinfo=V2_MOUNT)
    base = root / "sys/fs/cgroup"
    for path, kills in (("user.slice/job.scope", 2), ("user.slice", 3)):
        (base / path).mkdir(parents=True, exist_ok=True)
        (base / path / "memory.events").write_text(EVENTS.format(kills=kills))
    own = base / "user.slice/job.scope"
    for name, text in (("current", "1048576\n"), ("peak", "2097152\n"), ("max", "max\n")):
        (own / f"memory.{name}").write_text(text)


def v1_machine(root: Path, membership: str, top: str = "/") -> Path:
    put(root, proc__self__cgroup=membership, proc__self__mountinfo=V1_MOUNTS.format(top=top))
    base = root / "sys/fs/cgroup/memory"
    base.mkdir(parents=True)
    return base


def fill_v1(directory: Path, kills: str = "oom_kill 4\n", limit: str = "9223372036854771712") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\n{kills}")
    (directory / "memory.limit_in_bytes").write_text(limit + "\n")
    (directory / "memory.usage_in_bytes").write_text("4096\n")
    (directory / "memory.max_usage_in_bytes").write_text("8192\n")
    (directory / "memory.failcnt").write_text("7\n")


def test_version_2_reads_the_own_group_and_its_ancestors(tmp_path: Path) -> None:
    """The root has no memory files and is left out; "max" is no limit."""
    v2_machine(tmp_path)
    own, above = host_counters.counters(root=tmp_path)["cgroups"]
    assert (own["path"], own["version"], own["oom_kill"], own["oom_group_kill"]) == ("/user.slice/job.scope", 2, 2, 1)
    assert (own["current"], own["peak"], own["limit"], own["max"]) == (1 << 20, 2 << 20, None, 345)
    assert (above["path"], above["oom_kill"], above["current"]) == ("/user.slice", 3, None)


def test_version_1_reads_oom_control_and_failcnt(tmp_path: Path) -> None:
    """On a hybrid host the version 2 hierarchy without a memory controller is ignored."""
    base = v1_machine(tmp_path, "9:name=systemd:/\n4:memory:/slurm/job_7\n0::/\n")
    fill_v1(base / "slurm/job_7", limit="209715200")
    fill_v1(base / "slurm")
    own, above = host_counters.counters(root=tmp_path)["cgroups"]
    assert (own["path"], own["version"], own["oom_kill"], own["limit"]) == ("/slurm/job_7", 1, 4, 200 << 20)
    assert (own["limit_hits"], own["current"], own["peak"]) == (7, 4096, 8192)
    assert (above["path"], above["limit"]) == ("/slurm", None)


def test_version_1_of_an_old_kernel_has_no_count_of_kills(tmp_path: Path) -> None:
    """oom_kill was added to memory.oom_control in Linux 4.13: None, not 0."""
    base = v1_machine(tmp_path, "4:memory:/a\n")
    fill_v1(base / "a", kills="")
    assert host_counters.counters(root=tmp_path)["cgroups"][0]["oom_kill"] is None


def test_container_sees_its_group_as_the_top_of_the_mount(tmp_path: Path) -> None:
    """Without a cgroup namespace /proc/self/cgroup has the host's path, and only that part is mounted."""
    base = v1_machine(tmp_path, "4:memory:/docker/abc/inner\n", top="/docker/abc")
    fill_v1(base / "inner")
    fill_v1(base)
    assert [item["path"] for item in host_counters.counters(root=tmp_path)["cgroups"]] == ["/inner", "/"]


def test_directory_on_a_tmpfs_is_no_cgroup(tmp_path: Path) -> None:
    """/sys/fs/cgroup of a hybrid host is a tmpfs, where any process may create files of these names."""
    mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    put(tmp_path, proc__self__cgroup="0::/job\n", proc__self__mountinfo=mounts)
    (tmp_path / "sys/fs/cgroup/job").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/job/memory.events").write_text(EVENTS.format(kills=1))
    found = host_counters.counters(root=tmp_path)
    assert found["cgroups"] == []
    assert found["cgroups_why"] == "no memory cgroup is mounted here"


@pytest.mark.parametrize("membership", ["0::/../../elsewhere\n", "", "garbage", "0::/gone\n"])
def test_membership_that_cannot_be_resolved_is_said(membership: str, tmp_path: Path) -> None:
    """A group outside of the namespace, nothing, nonsense, or a group that was removed."""
    v2_machine(tmp_path, membership)
    found = host_counters.counters(root=tmp_path)
    assert found["cgroups"] == []
    assert found["cgroups_why"]


def test_nothing_readable_is_none_with_a_reason(tmp_path: Path) -> None:
    """An empty /proc, as in some sandboxes."""
    found = host_counters.counters(root=tmp_path)
    assert found["cgroups"] == []
    assert found["cgroups_why"].startswith("ENOENT")
    assert found["vmstat_oom_kill"] is None
    assert found["vmstat_why"].startswith("ENOENT")
    assert (found["psi_memory"], found["mem_available"], found["swap_free"]) == (None, None, None)


def test_vmstat_meminfo_and_pressure(tmp_path: Path) -> None:
    """The machine as a whole."""
    put(
        tmp_path,
        proc__vmstat="nr_free_pages 5836042\npgmajfault 11\noom_kill 3\nnuma_hit 8\n",
        proc__meminfo="MemTotal:  24683588 kB\nMemAvailable:  23883632 kB\nSwapFree:  0 kB\nHugePages_Total:  0\n",
        proc__pressure__memory="some avg10=1.50 avg60=0.00 total=17\nfull avg10=0.25 avg60=0.00 total=9\n",
    )
    found = host_counters.counters(root=tmp_path)
    assert found["vmstat_oom_kill"] == 3
    assert (found["mem_available"], found["swap_free"]) == (23883632 * 1024, 0)
    assert (found["psi_memory"]["some_avg10"], found["psi_memory"]["full_total"]) == (1.5, 9.0)


def test_kernel_without_a_count_of_oom_kills(tmp_path: Path) -> None:
    """Before Linux 4.13."""
    put(tmp_path, proc__vmstat="nr_free_pages 1\n")
    found = host_counters.counters(root=tmp_path)
    assert (found["vmstat_oom_kill"], found["vmstat_why"]) == (None, "the kernel does not count oom_kill")


def test_programs_that_kill_when_memory_is_short(tmp_path: Path) -> None:
    """By their names."""
    put(tmp_path, proc__7__comm="earlyoom\n", proc__8__comm="bash\n", proc__99__comm="systemd-oomd\n")
    assert sorted(item["pid"] for item in host_counters.killers(tmp_path) or []) == [7, 99]
    assert host_counters.killers(tmp_path / "nowhere") is None


def test_scheduler_is_known_by_its_variables() -> None:
    """Nothing else of the environment is kept."""
    assert host_counters.scheduler({"SLURM_JOB_ID": "7", "AWS_SECRET": "x", "PBS_JOBID": ""}) == {"SLURM_JOB_ID": "7"}


def test_this_machine_can_be_read_without_raising() -> None:
    """Whatever it is."""
    found = host_counters.counters()
    assert found["mono_ns"] > 0
    assert isinstance(found["cgroups"], list)
