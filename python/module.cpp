// The functions of api/stretto.hpp for Python; python/stretto/__init__.py makes dicts of their results.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "stretto.hpp"

namespace py = pybind11;
namespace api = stretto::api;

PYBIND11_MODULE(_stretto, module) {
  static py::exception<api::Error> failure(module, "Error", PyExc_RuntimeError);
  static py::exception<api::Error> input_error(module, "InputError", failure.ptr());
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const api::Error& error) {
      (error.is_input() ? input_error : failure)(error.what());
    }
  });
  const auto request = [](std::string scenario, std::vector<std::string> set, std::string platform) {
    return api::Request{std::move(scenario), std::move(set), std::move(platform)};
  };
  // Other Python threads may run during the call. The callers make sure that only one thread is in the library.
  module.def("simulate", [=](std::string scenario, std::vector<std::string> set, std::string platform,
                             std::string engine, double backbone_GBps, bool modes, bool limits, bool fit) {
    py::gil_scoped_release released;
    return api::simulate(request(scenario, set, platform), {engine, backbone_GBps, modes, limits, fit});
  });
  module.def("show", [=](std::string scenario, std::vector<std::string> set, std::string platform) {
    py::gil_scoped_release released;
    return api::show(request(scenario, set, platform));
  });
  module.def("gates", [=](std::string scenario, std::vector<std::string> set, std::string platform) {
    py::gil_scoped_release released;
    return api::gates(request(scenario, set, platform));
  });
  module.def("compare", [=](std::string scenario, std::vector<std::string> set, std::string platform) {
    py::gil_scoped_release released;
    return api::compare(request(scenario, set, platform));
  });
  module.def("train", [=](std::string scenario, std::vector<std::string> set, std::string platform, py::object on_step,
                          py::object on_message) {
    // An exception of a callback, or of a signal's handler, stops training cleanly, and is raised after that.
    std::exception_ptr raised;
    const auto guarded = [&](auto act) {
      py::gil_scoped_acquire held;
      try {
        return !raised && act();
      } catch (py::error_already_set&) {
        raised = std::current_exception();
        return false;
      }
    };
    const auto passes_signals = [&] {
      return guarded([] { return PyErr_CheckSignals() == 0 ? true : throw py::error_already_set(); });
    };
    api::TrainOptions options;
    options.stop = [&] { return !passes_signals(); };
    if (!on_step.is_none())
      options.on_step = [&](const std::string& step) { return guarded([&] { return on_step(step).cast<bool>(); }); };
    if (!on_message.is_none())
      options.on_message = [&](const std::string& line) { guarded([&] { return on_message(line), true; }); };
    std::string result;
    {
      py::gil_scoped_release released;
      result = api::train(request(scenario, set, platform), options);
    }
    if (raised) std::rethrow_exception(raised);
    return result;
  });
  module.def("import_settings",
             [](std::string file, std::string flags, std::string format, std::vector<std::string> set,
                std::vector<std::string> environment, std::int64_t gpus) {
               py::gil_scoped_release released;
               return api::import_settings({file, flags, format, set, environment, gpus});
             });
  module.def("export_settings",
             [=](std::string scenario, std::vector<std::string> set, std::string platform, std::string format) {
               py::gil_scoped_release released;
               return api::export_settings(request(scenario, set, platform), format);
             });
  module.def("diagnose",
             [=](std::string scenario, std::vector<std::string> set, std::string platform, std::string trace,
                 std::string section, std::string window, std::int64_t rank, std::string model) {
               py::gil_scoped_release released;
               return api::diagnose(request(scenario, set, platform), {trace, section, window, rank, model});
             });
  py::class_<api::Sweep>(module, "Sweep")
      .def(py::init([=](std::string scenario, std::vector<std::string> set, std::string platform,
                        std::vector<std::string> over, std::size_t best, bool all) {
        py::gil_scoped_release released;
        return std::make_unique<api::Sweep>(request(scenario, set, platform), over, best, all);
      }))
      .def("next", [](api::Sweep& sweep) {
        py::gil_scoped_release released;
        return sweep.next();
      });
  module.def("names", &api::names);
  module.attr("__version__") = api::version();
}
