#!/bin/bash
torchrun --nproc_per_node=8 --nnodes=2 scripts/training/run_recipe.py \
    --recipe llama3_8b_pretrain_2gpu_h100_bf16_config \
    model.transformer.tensor_model_parallel_size=2 \
    model.transformer.sequence_parallel=true \
    train.global_batch_size=128 train.micro_batch_size=1 \
    +model.transformer.cuda_graph_impl=none \
    mixed_precision=bf16_with_fp8_current_scaling_mixed \
    logger.log_interval=10 checkpoint.save=/results
