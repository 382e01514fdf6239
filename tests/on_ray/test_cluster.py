"""What a cluster has, and what is said where it is none."""

import socket

import pytest
from command_line import run, status_of

from jaxmarl_ppo.on_ray import cluster
from jaxmarl_ppo.on_ray.job import host_resources
from jaxmarl_ppo.on_ray.workers import RayCluster


@pytest.mark.parametrize(
    ("nodes", "num_cpus", "expected"),
    [
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}], None, [{"GPU": 1.0, "CPU": 1.0}] * 2),
        ([{"GPU": 1.0}], None, [{"GPU": 1.0, "CPU": 0.0}]),
        ([{"CPU": 8.0}, {"CPU": 2.0}, {"memory": 1.0}], None, [{"CPU": 8.0}, {"CPU": 2.0}]),
        ([{"CPU": 9.0}, {"CPU": 3.0}], 4, [{"CPU": 4.0}] * 2),
    ],
)
def test_workers_are_chosen_by_what_the_nodes_have(nodes, num_cpus, expected):
    assert cluster.worker_resources(nodes, num_cpus) == expected


@pytest.mark.parametrize(
    ("nodes", "num_cpus", "message"),
    [
        (
            [{"CPU": 2.0}, {"CPU": 1.0}],
            3,
            "no node of the cluster has 3 CPUs; CPUs of its nodes: 2",
        ),
        ([{"memory": 1.0}], None, "no node of the cluster has a CPU or GPU"),
        ([{"CPU": 8.0, "GPU": 1.0}], 2, "cpus_per_worker=2 has no effect in a cluster with GPUs"),
    ],
)
def test_a_cluster_without_room_for_a_worker_is_refused(nodes, num_cpus, message):
    with pytest.raises(ValueError, match=message):
        cluster.worker_resources(nodes, num_cpus)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{"CPU": 8.0}, {"CPU": 2.0}, {"CPU": 4.0}], {"CPU": 4.0}),
        ([{"CPU": 8.0}, {"CPU": 9.0, "GPU": 4.0}, {"GPU": 8.0, "CPU": 6.0}], {"GPU": 4, "CPU": 6}),
    ],
)
def test_hosts_take_what_the_weakest_of_them_has(nodes, expected):
    assert host_resources(nodes, 2) == expected


def test_too_few_hosts_are_told():
    with pytest.raises(ValueError, match=r"num_hosts=3 exceeds the 2 nodes .* that have a CPU"):
        host_resources([{"CPU": 1.0}, {"CPU": 4.0}, {"memory": 1.0}], 3)
    with pytest.raises(ValueError, match=r"num_hosts=2 exceeds the 1 nodes .* that have a GPU"):
        host_resources([{"CPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}], 2)


def test_other_versions_are_refused():
    own = cluster.versions()
    cluster.check_versions(own)
    with pytest.raises(ValueError, match=f"has jax {own['jax']}, but the driver has 0.1;"):
        cluster.check_versions({**own, "jax": "0.1"})


def test_without_ray_it_is_said_how_to_install_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(cluster.sys.modules, "ray", None)
    command = ["train", "crypto", "--num-hosts", "2", "--ray", "auto", "--run-dir"]
    assert status_of(*command, str(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    advice = "pip install ./envs '.[ray]' in a clone of the repository"
    assert said == f"error: a Ray cluster needs ray: {advice}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_is_is_refused_at_once(scheme):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"{scheme}127.0.0.1:{port}"
    with pytest.raises(ValueError, match=f"no Ray cluster can be reached at '{address}': "):
        cluster.connect(address, shows_output=False)


def test_a_worker_needs_a_cpu():
    with pytest.raises(ValueError, match="cpus_per_worker must be at least 1, got 0"):
        RayCluster("auto", 0)


def test_options_without_effect_are_refused(capsys, tmp_path):
    (tmp_path / "space.toml").touch()
    _, _, errors = run(capsys, "sweep", tmp_path / "space.toml", "--cpus-per-worker", "2")
    assert "--cpus-per-worker has no effect without --ray" in errors
