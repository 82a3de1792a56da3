#!/bin/busybox sh
# The first process of a test machine: loads the drivers, then runs the commands that come over the second serial
# line, one at a time. A command is one line of base64; its answer is its output in base64 and its exit status.
# A word on the kernel's command line, node=N, gives the machine its addresses.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
ulimit -l unlimited -n 4096
echo 1 >/proc/sys/kernel/panic
while read -r module || [ -n "$module" ]; do insmod "/modules/$module.ko" || echo "insmod $module failed"; done </modules/order

node=$(sed -n 's/.*node=\([0-9]*\).*/\1/p' /proc/cmdline)
hostname "node$node"
ip link set lo up
ip address add "10.9.0.$node/24" dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0

stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo "READY $(uname -r)" >&3
while read -r line <&3; do
  echo "$line" | base64 -d >/run/command
  sh /run/command >/run/output 2>&1 </dev/null 3>&-
  status=$?
  { base64 -w 0 /run/output; echo " $status"; } >&3
done
poweroff -f
