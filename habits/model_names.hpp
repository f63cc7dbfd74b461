#pragma once
#include "interchange/model_names.hpp"

namespace stretto::habits {

// Names of models are data of the importers too, which are below this folder.
using stretto::folded_model;
using stretto::keys_of_model;
using stretto::model_named;
using stretto::model_names;
using stretto::ModelName;
using stretto::nearest_model;

}  // namespace stretto::habits
