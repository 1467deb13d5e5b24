// Vocabularies that have grown beyond the files of their base: embedding and head get new rows at their end.
#pragma once

#include "models/family.h"

namespace lode {

// How many rows a vocabulary grows to: a multiple of 64, as LLaMA-Factory has it.
std::int64_t padded_rows(std::int64_t tokens);

// Makes spec and config.json have so many rows, more than now; what the files hold is remembered.
void grow_vocabulary(ModelConfig& config, std::int64_t rows);

// Whether the parameter is one that grows: the embedding, or a head of its own.
bool grows(const Parameter& parameter);
// The rows of a parameter that the files of the base hold.
Parameter stored_part(const ModelConfig& config, const Parameter& parameter);

// Fills the rows that the files do not hold, once the others are there. A row is the mean of the stored rows
// plus sqrt(1e-9) z (x - mean) with a drawn row x and a normal z: the mean and covariance that transformers
// draws new rows with (Hewitt 2021, "Initializing new word embeddings for pretrained language models"). It
// depends on the base's values alone, not on a run's seed, so that an adapter finds the same base again.
void fill_new_rows(Context& context, const ModelConfig& config, const Decoder& decoder);

}  // namespace lode
