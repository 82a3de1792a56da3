// What is read from sysfs, over a tree of files as Linux writes them.
#include "transport/rdma_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace evenkeel::transport {
namespace {

namespace fs = std::filesystem;

class RdmaDevice : public testing::Test {
 protected:
  RdmaDevice() { unsetenv("UCX_IB_GID_INDEX"); }
  ~RdmaDevice() override { fs::remove_all(root_); }

  void Write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void AddGid(int index, const std::string& address, const std::string& type) {
    Write("rxe0/ports/1/gids/" + std::to_string(index), address);
    if (!type.empty()) Write("rxe0/ports/1/gid_attrs/types/" + std::to_string(index), type);
  }
  void AddRoce() {
    Write("rxe0/ports/1/link_layer", "Ethernet");
    AddGid(0, "fe80:0000:0000:0000:5054:00ff:fe00:0901", "RoCE v2");
    AddGid(1, "0000:0000:0000:0000:0000:ffff:0a09:0001", "RoCE v2");
    AddGid(2, "0000:0000:0000:0000:0000:0000:0000:0000", "");
    AddGid(3, "0000:0000:0000:0000:0000:ffff:0a09:0001", "IB/RoCE v1");
  }
  std::string root() const { return root_.string(); }

  const fs::path root_ = fs::temp_directory_path() / ("rdma_device_test." + std::to_string(getpid()));
};

TEST_F(RdmaDevice, IsKnownByTheLane) {
  std::optional<RdmaPort> port = RdmaPortOfLane("rc_mlx5/mlx5_bond_0:2");
  ASSERT_TRUE(port.has_value());
  EXPECT_EQ(port->device, "mlx5_bond_0");
  EXPECT_EQ(port->port, 2);
  for (const char* lane : {"tcp/eth0", "rc_verbs", "rc_verbs/rxe0", "rc_verbs/:1", "rc_verbs/rxe0:x", ""}) {
    EXPECT_FALSE(RdmaPortOfLane(lane).has_value()) << lane;
  }
}

TEST_F(RdmaDevice, HasTheGidsThatAreInUse) {
  AddRoce();
  std::vector<Gid> gids = GidsOf({"rxe0", 1}, root());
  ASSERT_EQ(gids.size(), 3);
  EXPECT_EQ(gids[0].address, "fe80::5054:ff:fe00:901");
  EXPECT_FALSE(gids[0].ipv4);
  EXPECT_EQ(gids[1].address, "::ffff:10.9.0.1");
  EXPECT_TRUE(gids[1].ipv4);
  EXPECT_TRUE(gids[1].v2);
  EXPECT_EQ(gids[2].index, 3);
  EXPECT_FALSE(gids[2].v2);
}

TEST_F(RdmaDevice, WithIpv4OverUdpIsPreferred) {
  AddRoce();
  std::vector<Gid> gids = GidsOf({"rxe0", 1}, root());
  EXPECT_EQ(ChosenGid(gids, nullptr)->index, 1);
  EXPECT_EQ(ChosenGid(gids, "auto")->index, 1);
  EXPECT_EQ(ChosenGid(gids, "3")->index, 3);
  EXPECT_FALSE(ChosenGid(gids, "7").has_value());
  EXPECT_FALSE(ChosenGid({}, nullptr).has_value());
}

TEST_F(RdmaDevice, IsDescribedWithItsGids) {
  AddRoce();
  std::string text = DescribeRdmaLane("rc_verbs/rxe0:1", root());
  EXPECT_EQ(text,
            "device rxe0, port 1, GID index 1 (::ffff:10.9.0.1, RoCE v2); its other GIDs: 0 "
            "(fe80::5054:ff:fe00:901, RoCE v2), 3 (::ffff:10.9.0.1, RoCE v1)");
}

TEST_F(RdmaDevice, OfInfiniBandIsDescribedWithoutGids) {
  Write("mlx5_0/ports/1/link_layer", "InfiniBand");
  EXPECT_EQ(DescribeRdmaLane("rc_mlx5/mlx5_0:1", root()), "device mlx5_0, port 1");
}

TEST_F(RdmaDevice, WithoutTheWantedGidSaysSo) {
  AddRoce();
  setenv("UCX_IB_GID_INDEX", "9", 1);
  std::string text = DescribeRdmaLane("rc_verbs/rxe0:1", root());
  unsetenv("UCX_IB_GID_INDEX");
  EXPECT_NE(text.find("GID index 9 (the port has no such GID"), std::string::npos) << text;
}

TEST_F(RdmaDevice, IsOfMlx5WhereItsDriverIs) {
  EXPECT_FALSE(OnlyMlx5Devices(root()));
  fs::create_directories(root_ / "mlx5_0/device");
  fs::create_symlink("../../../bus/pci/drivers/mlx5_core", root_ / "mlx5_0/device/driver");
  EXPECT_TRUE(OnlyMlx5Devices(root()));
  AddRoce();  // a software device has no driver
  EXPECT_FALSE(OnlyMlx5Devices(root()));
}

}  // namespace
}  // namespace evenkeel::transport
