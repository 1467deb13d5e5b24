#include "optim/state_store.h"

#include "optim/reference_test.h"
#include "temp_folder.h"

namespace lode::test {
namespace {

std::unique_ptr<StateStore> store_in(const std::string& folder) {
  return std::make_unique<StateStore>(folder, 8);
}

// Steps from a file are the steps from memory, for elementwise optimizers and those of matrices.
TEST(StateStore, ChangesNoBit) {
  const TempFolder folder;
  const std::vector<OptimizerOptions> optimizers = {AdamWOptions{}, AdamW8bitOptions{.min_8bit_size = 1},
                                                    MuonOptions{},
                                                    GaloreOptions{.rank = 3, .update_interval = 4}};
  for (const OptimizerOptions& options : optimizers) {
    Problem memory, file;
    memory.add_standard();
    file.add_standard();
    memory.start(options);
    file.start(options, store_in(folder.path()));
    memory.run(0, 10);
    file.run(0, 10);
    EXPECT_EQ(file.weights(), memory.weights());
    EXPECT_EQ(file.updater->state_bytes(), memory.updater->state_bytes());
    for (const auto& state : file.updater->states()) EXPECT_TRUE(state.empty());
    EXPECT_EQ(file.updater->store()->counts().written, 80);
    EXPECT_EQ(file.updater->store()->counts().read, 72);
  }
}

TEST(StateStore, HoldsAFewParametersStateInMemory) {
  const TempFolder folder;
  std::size_t peak[2];
  for (const bool stored : {false, true}) {
    Problem problem;
    for (int i = 0; i < 8; ++i) problem.add(format("layers.{}.w.weight", i), 300, 300);
    problem.start(AdamWOptions{}, stored ? store_in(folder.path()) : nullptr);
    problem.memory.reset_peak();
    problem.run(0, 3);
    peak[stored ? 1 : 0] = problem.memory.use().peak[static_cast<int>(MemoryTag::optimizer)];
  }
  EXPECT_GE(peak[0], std::size_t{8} * 300 * 300 * 8);
  EXPECT_LE(peak[1], std::size_t{5} * 300 * 300 * 8);
}

TEST(StateStore, GivesBackWhatWasPut) {
  const TempFolder folder;
  Problem problem;
  StateStore store(folder.path(), 2);
  EXPECT_FALSE(store.has(0));
  for (const float value : {1.0f, 2.0f}) {
    std::vector<Tensor> tensors;
    for (const std::int64_t cols : {3, 1000}) {
      tensors.emplace_back(problem.memory, MemoryTag::optimizer, DType::f32, 2, cols);
      for (std::int64_t i = 0; i < 2 * cols; ++i)
        tensors.back().view().row<float>(0)[i] = value + static_cast<float>(i);
    }
    store.put(1, std::move(tensors));
  }
  store.flush();
  EXPECT_EQ(store.read(problem.memory, 1, 1).view().row<float>(1)[999], 2.0f + 1999);
  store.read_ahead(problem.context, 1);
  const auto tensors = store.take(problem.context, 1);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].view().row<float>(1)[2], 2.0f + 5);
  EXPECT_EQ(store.shape(1, 1).cols, 1000);
  EXPECT_EQ(store.counts().read, 1);
}

// A file that is full at the n-th write.
class FullScratch : public ScratchFile {
 public:
  explicit FullScratch(int writes) : left_(writes) {}
  void write(std::uint64_t, std::span<const std::byte>) override {
    if (left_-- == 0) fail(ErrorKind::data, "no space");
  }
  void read(std::uint64_t, std::span<std::byte>) override {}
  bool direct() const override { return false; }

 private:
  int left_;
};

TEST(StateStore, AFullFolderIsNamed) {
  const TempFolder folder;
  Problem problem;
  problem.add_standard();
  problem.start(AdamWOptions{}, std::make_unique<StateStore>(folder.path(), 8, [](const std::string&, bool) {
                  return std::make_unique<FullScratch>(3);
                }));
  try {
    problem.run(0, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("optim_offload_dir: no space"), std::string::npos)
        << error.what();
  }
}

TEST(StateStore, RefusesBAdam) {
  const TempFolder folder;
  Problem problem;
  problem.add("model.layers.0.w.weight", 2, 2);
  EXPECT_THROW(problem.start(BadamOptions{}, store_in(folder.path())), Error);
}

}  // namespace
}  // namespace lode::test
