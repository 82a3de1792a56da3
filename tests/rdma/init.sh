#!/bin/busybox sh
# The first process of a test machine: loads the drivers, then runs the commands that come over the second serial
# line, one at a time. A command is one line: a checksum and the command in base64; its answer is a checksum, that
# of the command, its output in base64 and its exit status. An emulated line may lose bytes, so a command whose checksum
# is wrong is not run but answered by DAMAGED, and the command `again` repeats the last answer.
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
sum() { md5sum | cut -d " " -f 1; }
while read -r checksum line <&3; do
  if [ "$(echo "$line" | sum)" != "$checksum" ]; then
    echo DAMAGED >&3
    continue
  fi
  echo "$line" | base64 -d >/run/command
  if [ "$(cat /run/command)" != again ]; then
    sh /run/command >/run/output 2>&1 </dev/null 3>&-
    status=$?
    { echo -n "$checksum "; base64 -w 0 /run/output; echo " $status"; } >/run/answer
  fi
  echo "$(sum </run/answer) $(cat /run/answer)" >&3
done
poweroff -f
