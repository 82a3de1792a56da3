// The extension module `evenkeel._evenkeel`: binds the consumer and the planner. The package's .py files are
// the public interface.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <utility>

#include "client/consumer.h"
#include "client/python/src/arrays.h"
#include "client/python/src/plan.h"
#include "client/python/src/status.h"
#include "client/shared_step.h"
#include "core/context_groups.h"
#include "core/cpu.h"
#include "core/job.h"

namespace evenkeel::python {
namespace py = pybind11;
namespace {

constexpr absl::Duration kSignalCheck = absl::Milliseconds(100);  // how late Ctrl-C may be noticed

// int64 [num_segments, 3]: peer, first row, number of rows.
py::array WrapSegments(const std::vector<RouteSegment>& segments) {
  py::array_t<int64_t> out({static_cast<py::ssize_t>(segments.size()), py::ssize_t{3}});
  auto rows = out.mutable_unchecked<2>();
  for (size_t i = 0; i < segments.size(); ++i) {
    rows(i, 0) = segments[i].peer;
    rows(i, 1) = static_cast<int64_t>(segments[i].row);
    rows(i, 2) = static_cast<int64_t>(segments[i].rows);
  }
  return out;
}

py::dict WrapRoute(const client::LocalRoute& route) {
  py::dict out;
  out["source"] = std::string(PhaseName(route.from));
  out["destination"] = std::string(PhaseName(route.to));
  out["microbatch"] = route.microbatch;
  out["num_ranks"] = route.num_ranks;
  out["all_stay"] = route.all_stay;
  out["send"] = WrapSegments(route.route.send);
  out["receive"] = WrapSegments(route.route.receive);
  out["rows_in"] = route.route.rows_in;
  out["rows_out"] = route.route.rows_out;
  out["microbatch_offsets"] = route.route.microbatch_offsets;
  return out;
}

// A received step. The Python side reads its members once; the arrays share its memory.
class Step {
 public:
  explicit Step(std::shared_ptr<const client::StepData> data) : data_(std::move(data)) {}

  const client::StepData& data() const { return *data_; }
  // The step as bytes for a member with the role (core/mesh.h: PartRole), written into what `allocate(size)` returns, a
  // writable buffer of that size. Returns it.
  py::object Share(uint32_t role, const py::function& allocate) const {
    absl::StatusOr<client::SharedStep> shared = client::SharedStep::Of(*data_, static_cast<PartRole>(role));
    Check(shared.status());
    py::object memory = allocate(shared->num_bytes());
    const py::buffer_info info = py::buffer(memory).request(/*writable=*/true);
    absl::Status status;
    {
      std::span<std::byte> out(static_cast<std::byte*>(info.ptr),
                               static_cast<size_t>(info.size * info.itemsize));
      py::gil_scoped_release released;
      status = shared->Write(out);
    }
    Check(status);
    return memory;
  }
  // The step of bytes that Share wrote; it keeps `memory` alive.
  static Step FromShared(const py::buffer& memory, uint64_t index) {
    const py::buffer_info info = memory.request();
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(info.ptr),
                                           static_cast<size_t>(info.size * info.itemsize));
    // The last array may be released by a thread without the interpreter.
    auto owner = std::shared_ptr<const void>(memory.inc_ref().ptr(), [](const void* object) {
      if (Py_IsInitialized() == 0) return;
      py::gil_scoped_acquire acquired;
      Py_DECREF(static_cast<PyObject*>(const_cast<void*>(object)));
    });
    absl::StatusOr<std::shared_ptr<const client::StepData>> step = absl::UnknownError("not read");
    {
      py::gil_scoped_release released;
      step = client::ReadSharedStep(bytes, owner, index);
    }
    Check(step.status());
    return Step(*std::move(step));
  }
  std::string Digest() const {
    py::gil_scoped_release released;
    return client::DigestStep(*data_).Hex();
  }
  // [(phase, rank, microbatch, piece, keys, {name: (array, dtype, expansion)})] in canonical order.
  py::list Parts() const {
    py::list out;
    for (const client::PartData& part : data_->parts) {
      py::dict tensors;
      for (const TensorView& tensor : part.view.tensors) {
        tensors[py::str(tensor.spec.name)] = WrapTensor(data_, tensor);
      }
      out.append(py::make_tuple(std::string(PhaseName(part.name.phase)), part.name.rank, part.name.microbatch,
                                part.name.piece, part.view.keys, std::move(tensors)));
    }
    return out;
  }
  py::list Routes() const {
    py::list out;
    for (const client::LocalRoute& route : data_->routes) out.append(WrapRoute(route));
    return out;
  }
  // ([(first, size)] of every microbatch, [[(first, size)]] of the next steps); empty without dynamic groups.
  py::tuple Groups() const {
    const auto wrap = [](const std::vector<RankGroup>& groups) {
      py::list out;
      for (const RankGroup& group : groups) out.append(py::make_tuple(group.first, group.size));
      return out;
    };
    py::list ahead;
    for (const std::vector<RankGroup>& groups : data_->groups.ahead) ahead.append(wrap(groups));
    return py::make_tuple(wrap(data_->groups.of_microbatch), std::move(ahead));
  }
  // {phase: (number of ranks, {name: (max, mean, own or None, [all])})}
  py::dict Loads() const {
    py::dict out;
    for (const client::PhaseLoads& loads : data_->loads) {
      py::dict spreads;
      for (const auto& [name, spread] : {std::pair("before", &loads.before), std::pair("after", &loads.after),
                                         std::pair("tokens_before", &loads.tokens_before),
                                         std::pair("tokens_after", &loads.tokens_after)}) {
        spreads[name] = py::make_tuple(spread->max, spread->mean, spread->own, spread->all);
      }
      out[py::str(std::string(PhaseName(loads.phase)))] = py::make_tuple(loads.num_ranks, std::move(spreads));
    }
    return out;
  }

 private:
  std::shared_ptr<const client::StepData> data_;
};

template <typename T>
T Get(const py::dict& options, const char* key, T otherwise) {
  return options.contains(key) ? options[key].cast<T>() : otherwise;
}

absl::Duration GetSeconds(const py::dict& options, const char* key, absl::Duration otherwise) {
  return absl::Seconds(Get<double>(options, key, absl::ToDoubleSeconds(otherwise)));
}

client::ConsumerOptions ReadOptions(const py::dict& in) {
  client::ConsumerOptions out;
  out.endpoints = Get<std::string>(in, "endpoints", "");
  out.rank = Get<uint32_t>(in, "rank", 0);
  out.first_step = Get<uint64_t>(in, "first_step", 0);
  out.num_steps = Get<uint64_t>(in, "num_steps", UINT64_MAX);
  out.transport = Get<std::string>(in, "transport", out.transport);
  out.require_rdma = Get<bool>(in, "require_rdma", false);
  out.trusted_data_network = Get<bool>(in, "trusted_data_network", false);
  out.devices = Get<std::string>(in, "devices", "");
  out.prefetch_bytes = Get<uint64_t>(in, "prefetch_bytes", out.prefetch_bytes);
  out.prefetch_steps = Get<uint32_t>(in, "prefetch_steps", out.prefetch_steps);
  out.connect_timeout = GetSeconds(in, "connect_timeout", out.connect_timeout);
  out.step_timeout = GetSeconds(in, "step_timeout", out.step_timeout);
  out.progress_timeout = GetSeconds(in, "progress_timeout", out.progress_timeout);
  out.expect_stream_digest = Get<std::string>(in, "expect_stream_digest", "");
  out.expect_layout_digest = Get<std::string>(in, "expect_layout_digest", "");
  out.all_loads = Get<bool>(in, "all_loads", false);
  out.whole = Get<bool>(in, "whole", false);
  out.tls = {Get<std::string>(in, "tls_certificate", ""), Get<std::string>(in, "tls_key", ""),
             Get<std::string>(in, "tls_ca", "")};
  return out;
}

class PyConsumer {
 public:
  explicit PyConsumer(const py::dict& in) {
    client::ConsumerOptions options = ReadOptions(in);
    absl::Status status;
    {
      py::gil_scoped_release released;
      auto consumer = client::Consumer::Connect(std::move(options));
      status = consumer.status();
      if (consumer.ok()) consumer_ = *std::move(consumer);
    }
    Check(status);
  }
  // pybind11 throws here only if it creates its internals, which exist since the module was loaded.
  ~PyConsumer() { Close(); }  // NOLINT(bugprone-exception-escape)

  void Close() {
    py::gil_scoped_release released;
    consumer_.reset();
  }

  // Returns None past the last step. A signal (Ctrl-C) ends the wait: it is cut into short pieces, and
  // Python's handlers run between them.
  py::object Next() {
    client::Consumer& consumer = Open();
    for (bool decided = false; !decided;) {
      {
        py::gil_scoped_release released;
        decided = consumer.Wait(kSignalCheck);
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    absl::StatusOr<std::shared_ptr<const client::StepData>> step =
        consumer.Next();  // decided, so this returns at once
    if (step.status().code() == absl::StatusCode::kOutOfRange) return py::none();
    Check(step.status());
    return py::cast(Step(*std::move(step)));
  }

  void Seek(uint64_t step) {
    client::Consumer& consumer = Open();
    absl::Status status;
    {
      py::gil_scoped_release released;
      status = consumer.Seek(step);
    }
    Check(status);
  }

  py::dict State() {
    client::ConsumerState state = Open().state();
    py::dict out;
    out["step"] = state.next_step;
    out["stream_digest"] = state.stream_digest;
    out["layout_digest"] = state.layout_digest;
    return out;
  }

  py::dict Stats() {
    client::ConsumerStats stats = Open().stats();
    py::dict out;
    out["steps"] = stats.steps;
    out["parts"] = stats.parts;
    out["bytes"] = stats.bytes;
    out["requests"] = stats.requests;
    out["duplicate_requests"] = stats.duplicate_requests;
    out["replaced_workers"] = stats.replaced_workers;
    out["refused"] = stats.refused;
    out["grey_workers"] = stats.grey_workers;
    out["hash_failures"] = stats.hash_failures;
    out["wait_seconds"] = stats.wait_seconds;
    out["transport"] = stats.transport;
    return out;
  }

  // {phase: (global ranks, once_per_microbatch, None or (order, tensor, context, data, pipeline, members))}
  py::dict Phases() {
    py::dict out;
    for (const client::PhaseInfo& phase : Open().phases()) {
      out[py::str(std::string(PhaseName(phase.phase)))] =
          py::make_tuple(phase.ranks, phase.once_per_microbatch, WrapMesh(phase.mesh));
    }
    return out;
  }

  // {phase: names of the media of its targets}, of generators alone.
  py::dict Generators() {
    py::dict out;
    for (const client::PhaseInfo& phase : Open().phases()) {
      if (!phase.phase.is_generator()) continue;
      py::list media;
      for (Medium medium : kItemMedia) {
        if (phase.phase.takes(medium)) media.append(std::string(MediumName(medium)));
      }
      out[py::str(std::string(PhaseName(phase.phase)))] = py::tuple(media);
    }
    return out;
  }

  std::string Sequences() { return Open().sequences(); }
  std::vector<uint32_t> GroupSizes() { return Open().group_sizes(); }

  // None: the stream has no end.
  std::optional<uint64_t> NumSteps() { return Open().num_steps(); }

 private:
  static py::object WrapMesh(const Mesh& mesh) {
    if (mesh.ranks.empty()) return py::none();
    return py::make_tuple(MeshOrderName(mesh.order), mesh.size(MeshAxis::kTensor),
                          mesh.size(MeshAxis::kContext), mesh.size(MeshAxis::kData), mesh.stages(),
                          mesh.ranks);
  }

  client::Consumer& Open() {
    if (consumer_ == nullptr) throw py::value_error("the loader was closed");
    return *consumer_;
  }

  std::unique_ptr<client::Consumer> consumer_;
};

// Expands u8 patches to f32 (core's ExpandPixels). Writes into `into`, float32 [rows, columns], or into a new
// array if it is None.
py::array_t<float> PyExpandPixels(
    const py::array_t<uint8_t, py::array::c_style | py::array::forcecast>& patches, uint32_t channels,
    uint32_t frames, uint32_t frames_on_wire, uint32_t patch, const std::vector<float>& table,
    uint32_t patch_width, const py::object& into) {
  PixelExpansion expansion{channels, frames, frames_on_wire, patch, table, patch_width};
  py::ssize_t rows = patches.ndim() == 2 ? patches.shape(0) : 0;
  using Floats = py::array_t<float, py::array::c_style>;
  if (!into.is_none() && !py::isinstance<Floats>(into)) {
    throw py::value_error("out: expected a contiguous float32 array");
  }
  Floats out = into.is_none() ? Floats({rows, static_cast<py::ssize_t>(channels * frames * expansion.area())})
                              : py::reinterpret_borrow<Floats>(into);
  absl::Status status;
  {
    std::span<const std::byte> in(reinterpret_cast<const std::byte*>(patches.data()), patches.size());
    std::span<float> floats(out.mutable_data(), out.size());
    py::gil_scoped_release released;
    status = ExpandPixels(expansion, in, floats);
  }
  Check(status);
  return out;
}

}  // namespace

PYBIND11_MODULE(_evenkeel, module) {
  if (const absl::Status known = CheckCpuLevel(); !known.ok())
    throw py::import_error(std::string(known.message()));
  module.attr("STREAM_VERSION") = kStreamVersion;
  module.attr("GROUPS_AHEAD") = kGroupsAhead;
  module.def("expand_pixels", &PyExpandPixels);
  BindPlan(module);
  py::class_<Step>(module, "Step")
      .def_property_readonly("index", [](const Step& step) { return step.data().step; })
      .def_property_readonly("num_microbatches",
                             [](const Step& step) { return step.data().num_microbatches; })
      .def_property_readonly("loss_tokens", [](const Step& step) { return step.data().loss_tokens; })
      .def_property_readonly("num_samples", [](const Step& step) { return step.data().num_samples; })
      .def("parts", &Step::Parts)
      .def("routes", &Step::Routes)
      .def("loads", &Step::Loads)
      .def("groups", &Step::Groups)
      .def("digest", &Step::Digest)
      .def("share", &Step::Share)
      .def_static("from_shared", &Step::FromShared);
  py::class_<PyConsumer>(module, "Consumer")
      .def(py::init<const py::dict&>())
      .def("next", &PyConsumer::Next)
      .def("seek", &PyConsumer::Seek)
      .def("state", &PyConsumer::State)
      .def("stats", &PyConsumer::Stats)
      .def("phases", &PyConsumer::Phases)
      .def("generators", &PyConsumer::Generators)
      .def("sequences", &PyConsumer::Sequences)
      .def("group_sizes", &PyConsumer::GroupSizes)
      .def("num_steps", &PyConsumer::NumSteps)
      .def("close", &PyConsumer::Close);
}

}  // namespace evenkeel::python
