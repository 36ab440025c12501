#!/usr/bin/env bash
# The speed of the flash model beside that of MQSim (https://github.com/CMU-SAFARI/MQSim), on equal geometry, timing and
# workloads: page operations per second of the processor, write amplification, mean latency (docs/benchmarks.md). The speed
# is that of random writes with cleaning, of which two fifths of the operations are reads; of random reads only the latency is
# compared, since MQSim's runs of more than some 200,000 of them end with an error in its book-keeping.
#   suites/flash-mqsim.sh MQSIM [RUNS=5]
# MQSIM is its program, built with its Makefile (g++ -O3). Each simulator runs a long and a short run of each workload; what
# the long one takes more is what its additional operations take, so that starting up counts on neither side. Only user time
# counts: MQSim spends several seconds in the system at its start. Some minutes; nothing else should run.
MQSIM=$(realpath "${1:?give the path of the MQSim program}") || exit 2
RUNS=${2:-5}
cd "$(dirname "$0")/.." || exit 2
[ -n "${WEFT:-}" ] || [ -x target/release/weft ] || make build || exit 2
source suites/lib.sh
exec python3 - "$MQSIM" "$WEFT" "$RUNS" "$SCRATCH" <<'PY'
import json, os, re, resource, statistics, subprocess, sys
mqsim, weft, runs, scratch = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
CHANNELS, CHIPS, BLOCKS, PAGES, PAGE = 8, 4, 256, 64, 4096          # one die of one plane a chip; 2 GiB
READ, PROGRAM, ERASE, CHANNEL_MB, HIDDEN, QUEUE = 75_000, 750_000, 3_800_000, 333, 0.20, 64
LOGICAL = int(CHANNELS * CHIPS * BLOCKS * PAGES * (1 - HIDDEN))

def tags(values, indent):
    return "".join(f"{indent}<{name}>{value}</{name}>\n" for name, value in values.items())

def mqsim_device(preconditioned):
    flash = {"Flash_Technology": "SLC", "CMD_Suspension_Support": "NONE"}
    flash |= {f"Page_Read_Latency_{bit}": READ for bit in ("LSB", "CSB", "MSB")}
    flash |= {f"Page_Program_Latency_{bit}": PROGRAM for bit in ("LSB", "CSB", "MSB")}
    flash |= {"Block_Erase_Latency": ERASE, "Block_PE_Cycles_Limit": 10**8, "Suspend_Erase_Time": 700_000,
              "Suspend_Program_Time": 100_000, "Die_No_Per_Chip": 1, "Plane_No_Per_Die": 1, "Block_No_Per_Plane": BLOCKS,
              "Page_No_Per_Block": PAGES, "Page_Capacity": PAGE, "Page_Metadat_Capacity": 0}
    device = {"Seed": 321, "Enabled_Preconditioning": str(preconditioned).lower(), "Memory_Type": "FLASH",
              "HostInterface_Type": "NVME", "IO_Queue_Depth": 1024, "Queue_Fetch_Size": 512, "Caching_Mechanism": "SIMPLE",
              "Data_Cache_Sharing_Mode": "SHARED", "Data_Cache_Capacity": 268435456, "Data_Cache_DRAM_Row_Size": 8192,
              "Data_Cache_DRAM_Data_Rate": 800, "Data_Cache_DRAM_Data_Busrt_Size": 4, "Data_Cache_DRAM_tRCD": 13,
              "Data_Cache_DRAM_tCL": 13, "Data_Cache_DRAM_tRP": 13, "Address_Mapping": "PAGE_LEVEL",
              "Ideal_Mapping_Table": "true", "CMT_Capacity": 268435456, "CMT_Sharing_Mode": "SHARED",
              "Plane_Allocation_Scheme": "CWDP", "Transaction_Scheduling_Policy": "OUT_OF_ORDER",
              "Overprovisioning_Ratio": HIDDEN, "GC_Exec_Threshold": 0.05, "GC_Block_Selection_Policy": "GREEDY",
              "Use_Copyback_for_GC": "false", "Preemptible_GC_Enabled": "false", "GC_Hard_Threshold": 0.005,
              "Dynamic_Wearleveling_Enabled": "false", "Static_Wearleveling_Enabled": "false",
              "Static_Wearleveling_Threshold": 100, "Preferred_suspend_erase_time_for_read": 700_000,
              "Preferred_suspend_erase_time_for_write": 700_000, "Preferred_suspend_write_time_for_read": 100_000,
              "Flash_Channel_Count": CHANNELS, "Flash_Channel_Width": 1, "Channel_Transfer_Rate": CHANNEL_MB,
              "Chip_No_Per_Channel": CHIPS, "Flash_Comm_Protocol": "NVDDR2"}
    host = {"PCIe_Lane_Bandwidth": 1.0, "PCIe_Lane_Count": 4, "SATA_Processing_Delay": 400000,
            "Enable_ResponseTime_Logging": "false", "ResponseTime_Logging_Period_Length": 1000000}
    return (f'<?xml version="1.0" encoding="us-ascii"?>\n<Execution_Parameter_Set>\n\t<Host_Parameter_Set>\n'
            f'{tags(host, chr(9) * 2)}\t</Host_Parameter_Set>\n\t<Device_Parameter_Set>\n{tags(device, chr(9) * 2)}'
            f'\t\t<Flash_Parameter_Set>\n{tags(flash, chr(9) * 3)}\t\t</Flash_Parameter_Set>\n'
            f'\t</Device_Parameter_Set>\n</Execution_Parameter_Set>\n')

def mqsim_workload(reads, requests):
    flow = {"Priority_Class": "HIGH", "Device_Level_Data_Caching_Mode": "TURNED_OFF",
            "Channel_IDs": ",".join(map(str, range(CHANNELS))), "Chip_IDs": ",".join(map(str, range(CHIPS))),
            "Die_IDs": 0, "Plane_IDs": 0, "Initial_Occupancy_Percentage": 100, "Working_Set_Percentage": 100,
            "Synthetic_Generator_Type": "QUEUE_DEPTH", "Read_Percentage": reads, "Address_Distribution": "RANDOM_UNIFORM",
            "Percentage_of_Hot_Region": 0, "Generated_Aligned_Addresses": "true", "Address_Alignment_Unit": PAGE // 512,
            "Request_Size_Distribution": "FIXED", "Average_Request_Size": PAGE // 512, "Variance_Request_Size": 0,
            "Seed": 798, "Average_No_of_Reqs_in_Queue": QUEUE, "Bandwidth": 262144, "Stop_Time": 0,
            "Total_Requests_To_Generate": requests}
    return (f'<?xml version="1.0" encoding="us-ascii"?>\n<MQSim_IO_Scenarios>\n\t<IO_Scenario>\n'
            f'\t\t<IO_Flow_Parameter_Set_Synthetic>\n{tags(flow, chr(9) * 3)}\t\t</IO_Flow_Parameter_Set_Synthetic>\n'
            f'\t</IO_Scenario>\n</MQSim_IO_Scenarios>\n')

def timed(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    out = subprocess.run(command, input="\n", text=True, capture_output=True, cwd=scratch)
    if out.returncode != 0 or "ERROR" in out.stdout + out.stderr:
        sys.exit(f"{' '.join(command)}: status {out.returncode}: {(out.stdout + out.stderr)[-500:]}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, out.stdout

def run_mqsim(reads, requests):
    names = [os.path.join(scratch, name) for name in ("device.xml", "workload.xml")]
    for name, text in zip(names, (mqsim_device(reads == 100), mqsim_workload(reads, requests))):
        open(name, "w").write(text)
    seconds, _ = timed([mqsim, "-i", names[0], "-w", names[1]])
    report = open(os.path.join(scratch, "workload_scenario_1.xml")).read()
    count = lambda what: int(re.search(rf'Issued_Flash_{what}_CMD="(\d+)"', report).group(1))
    field = lambda what: float(re.search(rf"<{what}>([^<]*)<", report).group(1))
    idle = re.findall(r'Fraction_of_Time_in_Execution="([^"]*)"', report)
    return {"seconds": seconds, "reads": count("Read"), "programs": count("Program"), "erases": count("Erase"),
            "requests": requests, "mean_us": field("Device_Response_Time"), "iops": field("IOPS"),
            "busy": statistics.mean(map(float, idle))}

def run_weft(reads, settle, measure):
    toml = os.path.join(scratch, "device.toml")
    open(toml, "w").write(f'preset = "bbssd"\nchannels = {CHANNELS}\nluns_per_channel = {CHIPS}\nplanes = 1\n'
        f'pages_per_block = {PAGES}\npage_size = "{PAGE}"\nsize = "{CHANNELS * CHIPS * BLOCKS * PAGES * PAGE}"\n[timing]\n'
        f'page_read_ns = {READ}\nprogram_ns = {PROGRAM}\nerase_ns = {ERASE}\n'
        f'channel_bytes_per_s = {CHANNEL_MB}000000\nhost_bytes_per_s = 4000000000\n')
    op = HIDDEN / (1 - HIDDEN) * 100
    # MQSim cleans below 5 % of free blocks; of 256 units that is 13.
    seconds, out = timed([weft, "flash", "simulate", "--json", "--geometry", toml, "--op", str(op), "--gc", "greedy",
        "--luns-per-unit", str(CHANNELS * CHIPS), "--reserve", "13", "--queue-depth", str(QUEUE), "--reads", str(reads),
        "--settle", str(settle), "--measure", str(measure)])
    found = json.loads(out)
    side = found["read" if reads else "write"]
    programs, copies = found["media_bytes"] // PAGE, found["moved_bytes"] // PAGE
    return {"seconds": seconds, "reads": copies + found["read"]["count"], "programs": programs, "erases": found["erases"],
            "requests": found["requests"], "mean_us": side["mean_ns"] / 1000,
            "iops": found["requests"] / max(found["device_ns"], 1) * 1e9, "waf": found["waf"]}

def operations(run):
    return run["reads"] + run["programs"] + run["erases"]

def mqsim_rate(reads, short, long):
    few, many = run_mqsim(reads, short), run_mqsim(reads, long)
    rate = (operations(many) - operations(few)) / (many["seconds"] - few["seconds"]) / 1e6
    many["waf"] = (many["programs"] - few["programs"]) / (many["requests"] - few["requests"])
    many["mean_us"] = (many["mean_us"] * long - few["mean_us"] * short) / (long - short)
    # MQSim counts whole seconds: of short runs it cannot tell.
    device_s = [run["requests"] / run["iops"] for run in (few, many)]
    many["iops"] = (long - short) / (device_s[1] - device_s[0]) if device_s[1] > device_s[0] + 5 else None
    return rate, many

def weft_rate(reads, settle, measure):
    none, all = run_weft(reads, settle, 0), run_weft(reads, settle, measure)
    return operations(all) / (all["seconds"] - none["seconds"]) / 1e6, all

def show(rates):
    return f"{statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})"

def tell(who, run, waf):
    rate = "" if run["iops"] is None else f", {run['iops']:.0f} requests a second"
    busy = f", chips at work {run['busy'] * 100:.1f} % of the time" if "busy" in run else ""
    waf = f", write amplification {run['waf']:.3f}" if waf else ""
    print(f"  {who}: mean latency {run['mean_us']:.0f} us{rate}{waf}{busy}", flush=True)

print("random reads")
theirs = run_mqsim(100, 200_000)
tell("MQSim", theirs | {"iops": None}, False)
tell("weft", run_weft(100, 0, 1), False)
print("random writes, cleaning")
theirs, ours = [], []
for number in range(runs):
    theirs.append(mqsim_rate(0, 6 * LOGICAL, 12 * LOGICAL))
    ours.append(weft_rate(0, 5, 6))
    print(f"  run {number + 1}: MQSim {theirs[-1][0]:.2f}, weft {ours[-1][0]:.2f} million page operations per second of "
          f"the processor", flush=True)
tell("MQSim", theirs[0][1], True)
tell("weft", ours[0][1], True)
rates = [[rate for rate, _ in side] for side in (theirs, ours)]
ratios = [our / their for their, our in zip(*rates)]
print(f"million page operations per second of the processor, median (lowest to highest) of {runs}: "
      f"MQSim {show(rates[0])}, weft {show(rates[1])}, ratio {show(ratios)}")
PY
