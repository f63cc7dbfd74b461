#pragma once
#include <string>

#include "exec/data.hpp"
#include "exec/state/tensor_file.hpp"
#include "model/scenario.hpp"

namespace stretto::exec {

// A checkpoint's metadata describe the training.

// Returns the keys that must be equal for a resumed run to be the same training. The layout may differ.
CheckpointMetadata identity_of(const Scenario& scenario);
// Throws Error(input) that names the first key that differs.
void require_same_training(const TensorFile& checkpoint, const Scenario& scenario);

// Returns the keys that may change between runs, and whose changes alter the results. Reads as much of the data as
// TokenSource::identity() does.
CheckpointMetadata settings_of(const Training& training, const TokenSource& data);
// Lists the settings with other values in the checkpoint: "lr = 0.1 (was 0.01), …", or "". Keys that an older
// checkpoint lacks count as equal.
std::string changed_settings(const TensorFile& checkpoint, const CheckpointMetadata& settings);

}  // namespace stretto::exec
