#pragma once
#include <string>

#include "exec/data.hpp"
#include "exec/state/tensor_file.hpp"
#include "model/scenario.hpp"

namespace stretto::exec {

// A checkpoint's metadata describe the training.

// Must be the same for a resumed run to be the same training. The layout may differ.
CheckpointMetadata identity_of(const Scenario& scenario);
// Throws Error(input) that names the first key that differs.
void require_same_training(const TensorFile& checkpoint, const Scenario& scenario);

// May be changed on the way, which changes what comes out. Reads of the data what TokenSource::identity() does.
CheckpointMetadata settings_of(const Training& training, const TokenSource& data);
// Lists the settings that the checkpoint states otherwise: "lr = 0.1 (was 0.01), …", or "". Keys that an older
// checkpoint does not have are taken as the same.
std::string changed_settings(const TensorFile& checkpoint, const CheckpointMetadata& settings);

}  // namespace stretto::exec
