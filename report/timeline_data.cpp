#include "report/timeline_data.hpp"

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "report/colours.hpp"

namespace stretto {
namespace {

std::int64_t nanoseconds(Picoseconds time) { return std::llround(double(time) * 1e-3); }

// Returns null for a value that is not finite, otherwise tenths of a microsecond.
nlohmann::json rounded_ms(double ms) {
  return std::isfinite(ms) ? nlohmann::json(std::round(ms * 1e4) / 1e4) : nlohmann::json(nullptr);
}

// Collects the data for report/html/timeline.js, which documents the fields. Names are stored once.
class TimelineData {
 public:
  nlohmann::json of(const HtmlReport& report) {
    for (int phase = 0; phase <= static_cast<int>(Phase::param_sync); ++phase)
      colour_index(colour_of_phase(static_cast<Phase>(phase)), name_of(static_cast<Phase>(phase)));
    nlohmann::json steps = nlohmann::json::array();
    for (const HtmlStep& step : report.steps) {
      if (!step.has_timeline()) continue;
      nlohmann::json operations = nlohmann::json::array(), sides = nlohmann::json::array();
      for (const OperationTime& op : step.row.operations)
        operations.push_back({op.name, op.kind, rounded_ms(op.predicted_ms), rounded_ms(op.measured_ms)});
      sides.push_back(side("predicted", step.predicted));
      if (step.is_measured()) sides.push_back(side("measured", step.measured));
      steps.push_back({{"title", step.ranks_text() + ", " + step.row.mode},
                       {"layout", step.layout},
                       {"sides", std::move(sides)},
                       {"operations", std::move(operations)}});
    }
    nlohmann::json phases = nlohmann::json::array(), kinds = nlohmann::json::array();
    for (int phase = 0; phase <= static_cast<int>(Phase::param_sync); ++phase)
      phases.push_back(name_of(static_cast<Phase>(phase)));
    for (int kind = 0; kind < kBarKinds; ++kind)
      kinds.push_back({name_of(static_cast<BarKind>(kind)), colour_of(static_cast<BarKind>(kind))});
    return {{"phases", std::move(phases)}, {"kinds", std::move(kinds)}, {"works", works_},
            {"colours", colours_},         {"labels", labels_},         {"steps", std::move(steps)}};
  }

 private:
  // Returns the index of a colour and its meaning: a communicator, rows of experts, or a phase of computation.
  std::size_t colour_index(const std::string& colour, const std::string& meaning) {
    const auto [found, is_new] = colour_index_.try_emplace(meaning, colours_.size());
    if (is_new) colours_.push_back({"--" + colour, meaning});
    return found->second;
  }
  std::size_t colour_of(const ExcerptLabel& label) {
    if (label.communicator.empty()) return colour_index(colour_of_phase(label.phase), name_of(label.phase));
    for (const CollectiveKind kind : {CollectiveKind::dispatch, CollectiveKind::combine})
      if (label.exchange == name_of(kind)) return colour_index(colour_of_exchange(kind), label.exchange);
    return colour_index(colour_of_communicator(label.communicator), label.communicator);
  }
  std::size_t colour_of(BarKind kind) {
    constexpr std::array kPhases = {Phase::forward,   Phase::dgrad,     Phase::wgrad,     Phase::setup,
                                    Phase::grad_sync, Phase::optimizer, Phase::param_sync};
    static_assert(kPhases.size() == kBarKinds);
    const Phase phase = kPhases[static_cast<std::size_t>(kind)];
    return colour_index(colour_of_phase(phase), name_of(phase));
  }

  std::size_t index_of(const ExcerptLabel& label) {
    const auto [work, new_work] = work_index_.try_emplace(label.work, works_.size());
    if (new_work) works_.push_back(label.work);
    const auto [found, is_new] = label_index_.try_emplace({label.name, work->second, label.phase}, labels_.size());
    if (is_new) labels_.push_back({label.name, static_cast<int>(label.phase), work->second, colour_of(label)});
    return found->second;
  }

  // Starts are written as distances from the end of the previous bar.
  static nlohmann::json stages(const std::vector<StageTrack>& stages) {
    nlohmann::json tracks = nlohmann::json::array();
    for (const StageTrack& stage : stages) {
      nlohmann::json bars = nlohmann::json::array();
      std::int64_t last_ns = 0;
      for (const StageBar& bar : stage.bars) {
        const std::int64_t start_ns = nanoseconds(bar.start), end_ns = nanoseconds(bar.end);
        const std::int64_t waits_ns = nanoseconds(bar.waits);
        for (const std::int64_t number :
             {static_cast<std::int64_t>(bar.kind), std::int64_t{bar.micro_batch}, std::int64_t{bar.chunk},
              start_ns - last_ns, end_ns - start_ns - waits_ns, waits_ns})
          bars.push_back(number);
        last_ns = end_ns;
      }
      tracks.push_back({{"role", stage.role}, {"rank", stage.rank}, {"bars", std::move(bars)}});
    }
    return tracks;
  }

  nlohmann::json side(const char* title, const TimelineExcerpt& timeline) {
    std::vector<std::size_t> index;
    for (const ExcerptLabel& label : timeline.labels) index.push_back(index_of(label));
    nlohmann::json tracks = nlohmann::json::array();
    for (const ExcerptTrack& track : timeline.tracks) {
      nlohmann::json slices = nlohmann::json::array();
      for (const ExcerptSlice& s : track.slices) {
        slices.push_back(index[s.label]);
        slices.push_back(s.lane);
        slices.push_back(nanoseconds(s.start));
        slices.push_back(nanoseconds(s.transfer - s.start));
        slices.push_back(nanoseconds(s.end - s.start));
      }
      tracks.push_back({{"rank", track.rank}, {"role", track.role}, {"slices", std::move(slices)}});
    }
    return {{"title", title},
            {"step", nanoseconds(timeline.step)},
            {"lanes", timeline.lanes},
            {"tracks", std::move(tracks)},
            {"ranks", timeline.all_ranks},
            {"stages", stages(timeline.stages)},
            {"all_bars", timeline.all_bars},
            {"window", timeline.cut_in_time
                           ? nlohmann::json({nanoseconds(timeline.window_begin), nanoseconds(timeline.window_end)})
                           : nlohmann::json(nullptr)},
            {"left_out", timeline.all_operations - timeline.operations()}};
  }

  std::map<std::string, std::size_t> work_index_;
  std::map<std::tuple<std::string, std::size_t, Phase>, std::size_t> label_index_;
  std::map<std::string, std::size_t> colour_index_;  // [meaning]
  nlohmann::json works_ = nlohmann::json::array(), labels_ = nlohmann::json::array(),
                 colours_ = nlohmann::json::array();
};

}  // namespace

nlohmann::json timeline_data(const HtmlReport& report) { return TimelineData().of(report); }

}  // namespace stretto
