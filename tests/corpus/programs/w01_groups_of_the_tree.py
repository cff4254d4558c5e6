import importlib.util
import os
import subprocess
import sysconfig
import tempfile

import torch
import torch.utils.cpp_extension as cpp

SOURCE = r"""
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <vector>
namespace py = pybind11;

struct Node {
    std::vector<long> leaves;
    double weight = 1.0;
};

class GroupTree {
    std::vector<Node *> nodes;
public:
    ~GroupTree() { for (Node *node : nodes) delete node; }
    void reduce(const std::vector<long> &leaves) {
        Node *node = new Node;
        node->leaves = leaves;
        nodes.push_back(node);
    }
    size_t size() const { return nodes.size(); }
    Node *node(size_t index) { return nodes.at(index); }
};

PYBIND11_MODULE(grouptree, m) {
    py::class_<Node>(m, "Node")
        .def_readonly("leaves", &Node::leaves)
        .def_readwrite("weight", &Node::weight);
    py::class_<GroupTree>(m, "GroupTree")
        .def(py::init<>())
        .def("reduce", &GroupTree::reduce)
        .def("node", &GroupTree::node)
        .def("__len__", &GroupTree::size);
}
"""


def build(folder):
    source = os.path.join(folder, "grouptree.cpp")
    with open(source, "w") as file:
        file.write(SOURCE)
    target = os.path.join(folder, "grouptree.so")
    includes = [f"-I{path}" for path in cpp.include_paths() + [sysconfig.get_paths()["include"]]]
    subprocess.check_call(["g++", "-O1", "-g", "-fPIC", "-shared", "-std=c++20", *includes, source, "-o", target])
    spec = importlib.util.spec_from_file_location("grouptree", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def group_means(module, features):
    tree = module.GroupTree()
    for start in range(0, features.size(0), 8):
        tree.reduce(list(range(start, start + 8)))
    means = []
    for index in range(len(tree)):
        node = tree.node(index)
        means.append(node.weight * features[node.leaves].mean(0))
    return torch.stack(means)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        grouptree = build(folder)
        model = torch.nn.Linear(16, 4)
        for epoch in range(3):
            means = group_means(grouptree, torch.randn(64, 16))
            loss = model(means).square().mean()
            loss.backward()
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
